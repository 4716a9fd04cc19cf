"""The configurations that come with the program: short, and ready to run."""

from pathlib import Path

import pytest
import yaml

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.placement import describe
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs.preflight import prepare

CONFIGS = Path(__file__).parents[3] / "configs"
INSTALLED = load_plugins(None)
MODES = {
    "grpo-digits": "temporal: rollout, reward, actor share cpu:0-1",
    "grpo-digits-spatial": "spatial: rollout, reward | actor on cpu:0 | cpu:1",
    "grpo-digits-hybrid": "hybrid: rollout | reward | actor on cpu:0-1 | cpu:0 | cpu:1",
    "grpo-digits-async": "spatial: rollout, reward | actor on cpu:0 | cpu:1",
    "grpo-digits-fused": "temporal: rollout+reward+actor share cpu:0 (+: in one process)",
}


def keys(section):
    return sum(keys(value) if isinstance(value, dict) else 1 for value in section.values())


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_is_short_and_says_how_it_is_run(path):
    text = path.read_text()
    assert 1 <= keys(yaml.safe_load(text)) <= 20
    assert f"#   rlinf train configs/{path.name}" in text


@pytest.mark.parametrize("name", MODES)
def test_each_mode_may_start(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    more = () if "-" in name.removeprefix("grpo-digits") else ("cluster.devices=cpu:2",)
    config = resolve([CONFIGS / f"{name}.yaml"], more, {}, INSTALLED)
    assert describe(prepare(config, INSTALLED).placement) == MODES[name]


def test_the_asynchronous_one_corrects_for_age():
    config = resolve([CONFIGS / "grpo-digits-async.yaml"], (), {}, INSTALLED)
    assert (config.rollout.staleness, config.settings("algorithm").importance_cap) == (2, 2)

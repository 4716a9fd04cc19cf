from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.config.interpolate import escaped
from rlinf_cli.config.load import resolve
from rlinf_cli.config.sections import DataConfig, RolloutConfig
from rlinf_cli.config.source import read_file
from rlinf_cli.config.write import inline

TEXTS = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("${}\\'\"\n #:[],~")), max_size=20)


def test_it_resolves_to_the_same_again(config, write):
    first = config("steps=${rollout.prompts}", "trainer.betas=[0.5, 1e-5]", "rollout.stop=[\"\\n\", '${name}', 'no']",
                   "trainer.train_layers=2", r"runs_dir=\${x}", "name=007")
    second = config(files=[write(first.to_yaml())])
    assert second == first
    assert (second.steps, second.runs_dir, second.name) == (6, "${x}", "007")
    assert set(map(str, second.origins.values())) == {f"run.yaml:{n}" for n in lines_with_values(second.to_yaml())}


def lines_with_values(text):
    return [number for number, line in enumerate(text.splitlines(), 1) if not line.endswith(":")]


def test_it_is_what_to_dict_says(config):
    found = config("trainer.lr=1e-5", "name=no", "rollout.stop=['1', 'a, b']")
    assert yaml.safe_load(found.to_yaml()) == found.to_dict()


def test_it_reads_well(config):
    text = config("steps=5", "rollout.stop=[a, b]").to_yaml()
    assert text.startswith("name: ''\nseed: 0\ndeterministic: false\nsteps: 5\nworkflow: reasoning\nplacement: auto\n"
                           "runs_dir: runs\ncluster:\n  devices: auto\n")
    assert "  stop: [a, b]\n" in text


def test_origins_are_comments(config, write):
    text = config("steps=5", files=[write("rollout:\n  top_k: 3\n")]).to_yaml(origins=True)
    assert "steps: 5  # the command line\n" in text
    assert "  top_k: 3  # run.yaml:2\n" in text
    assert "  lr: 0.001  # the preset of model tiny\n" in text
    assert "seed: 0  # the default\n" in text
    assert yaml.safe_load(text)["steps"] == 5


@settings(max_examples=150, deadline=None)
@given(text=TEXTS, stop=st.lists(TEXTS, max_size=3))
def test_any_text_comes_back_as_it_was(tmp_path_factory, text, stop):
    file = tmp_path_factory.mktemp("any") / "run.yaml"
    file.write_text(f"a: {inline(text)}\nb: {inline(stop)}\n", encoding="utf-8")
    assert [one.value for one in read_file(file)] == [escaped(text), escaped(stop)]


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, stop=st.lists(TEXTS.filter(bool), max_size=3))
def test_any_text_survives_a_second_resolution(plugins_once, tmp_path_factory, text, stop):
    default = resolve([], [], {}, plugins_once)
    first = replace(default, data=DataConfig(prompt_key=text), rollout=RolloutConfig(stop=stop))
    file = Path(tmp_path_factory.mktemp("any")) / "run.yaml"
    file.write_text(first.to_yaml(), encoding="utf-8")
    second = resolve([file], [], {}, plugins_once)
    assert (second.data.prompt_key, second.rollout.stop) == (text, stop)


@pytest.mark.parametrize("value", [
    1, 1e-7, 1e22, 0.1, True, None, "", "null", "1", "yes", "x: y", "- a", [], [1.5, "b"],
])
def test_values_come_back_from_any_yaml_reader(value):
    assert yaml.safe_load(inline(value)) == value
    assert "\n" not in inline(value)

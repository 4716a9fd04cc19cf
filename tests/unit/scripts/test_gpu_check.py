"""`scripts/gpu_check.py` as far as it goes without a GPU: what it says, how it fails, and its checks on a CPU."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[3] / "scripts" / "gpu_check.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def setting(script, tmp_path_factory):
    torch.set_num_threads(1)
    directory = tmp_path_factory.mktemp("model")
    script.save_model(directory, width=64, layers=2)
    return script.Setting("cpu", directory, slots=4, tokens=8)


def test_without_a_gpu_it_says_so_in_one_sentence(script, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu_check.py"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 4
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert "finds no GPU here, so nothing was checked: run it on" in line


@pytest.mark.parametrize("name", ["engine_bf16", "trainer_bf16", "trainer_offload", "engine_release", "tokens_per_s", "weights"])
def test_a_check_passes_on_a_cpu(script, setting, name, capsys):
    assert script.run_all(setting, [name]) == 0
    line, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (line["check"], line["ok"]) == (name, True)
    assert len(line) > 3
    assert summary["gpu_check"] == "passed"


def test_checks_notice_what_is_wrong(script, setting, monkeypatch):
    build = script.build_engine
    monkeypatch.setattr(script, "build_engine", lambda *arguments: Forgetful(build(*arguments)))
    with pytest.raises(script.CheckFailedError, match="holds other weights"):
        script.engine_bf16(setting)
    monkeypatch.setattr(script, "allocated", lambda setting: 10**9)
    with pytest.raises(script.CheckFailedError, match=r"offload says that .* bytes are free, but 0 are|0 bytes were freed"):
        script.trainer_offload(setting)


class Forgetful:
    """An engine that ignores new weights."""

    def __init__(self, engine):
        self._engine = engine

    def __getattr__(self, name):
        return getattr(self._engine, name)

    def update_weights(self, version, tensors):
        list(tensors)


def test_one_that_fails_or_breaks_does_not_end_the_others(script, setting, capsys):
    def wrong(setting):
        script.require(False, "it is not so")

    checks = {"wrong": wrong, "broken": lambda setting: 1 / 0, "right": lambda setting: {"speed": 1.23456}}
    assert script.run_all(setting, list(checks), checks) == 1
    wrong, broken, right, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (wrong["ok"], wrong["why"]) == (False, "it is not so")
    assert (broken["ok"], broken["why"]) == (False, "ZeroDivisionError: division by zero")
    assert (right["ok"], right["speed"]) == (True, 1.2346)
    assert (summary["gpu_check"], summary["failed"], summary["checks"]) == ("failed", ["wrong", "broken"], 3)


def test_reward_must_rise(script):
    def rows(*rewards):
        return "\n".join(json.dumps({"reward/mean": reward}) for reward in rewards)

    assert script.rising(rows(*[0.1] * 5, *[0.5] * 5)) == {"steps": 10, "first_reward": 0.1, "last_reward": 0.5}
    with pytest.raises(script.CheckFailedError, match=r"from 0\.300 to 0\.350 in 10 steps"):
        script.rising(rows(*[0.3] * 5, *[0.35] * 5))

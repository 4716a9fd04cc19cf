from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.naming import Reference, check_name, default_name, locate, parse_step, pointed_step, step_name

NOW = datetime(2026, 11, 29, 19, 5)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in ("grpo-digits", "ppo-math"):
        (tmp_path / "runs" / name / "checkpoints" / "step_000010").mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_text("{}")
    (tmp_path / "runs" / "grpo-digits" / "checkpoints" / "best").write_text("step_000010\n")
    return tmp_path / "runs"


def test_a_default_name_tells_what_runs_and_when():
    assert default_name("grpo", "digits", "tiny", NOW) == "grpo-digits-tiny-20261129-1905"


@pytest.mark.parametrize(("data", "model", "expected"), [
    ("/data/gsm 8k/train.jsonl", "Qwen/Qwen2.5-7B", "grpo-train-Qwen2.5-7B-20261129-1905"),
    ("countdown", "/models/llama.gguf/", "grpo-countdown-llama-20261129-1905"),
    ("my_pkg.data:Rows", "tiny:qwen2", "grpo-my_pkg.data-Rows-tiny-qwen2-20261129-1905"),
    ("..", "数学", "grpo-20261129-1905"),
    ("x" * 200, "tiny", f"grpo-{'x' * 32}-tiny-20261129-1905"),
])
def test_a_default_name_is_always_a_valid_one(data, model, expected):
    assert default_name("grpo", data, model, NOW) == expected
    assert check_name(expected) == expected


@pytest.mark.parametrize("name", [
    "", ".", "..", "a/b", "a@3", "/etc", "-x", ".hidden", "a b", "a\nb", "a\x00", "x" * 121, "é" * 61])
def test_a_name_that_is_no_directory_name_is_refused(name):
    with pytest.raises(UsageError, match=r"cannot be a directory's name.*--name"):
        check_name(name)


def test_steps_in_names_sort_and_parse_back():
    assert step_name(7) == "step_000007"
    assert [parse_step(step_name(step)) for step in (0, 10, 1234567)] == [0, 10, 1234567]
    assert [parse_step(name) for name in ("step_7", "latest", ".writing-step_000007", "step_000007x")] == [None] * 4


@pytest.mark.parametrize(("reference", "step"), [
    ("grpo-digits", None),
    ("{runs}/grpo-digits", None),
    ("{runs}/grpo-digits/", None),
    ("{runs}/grpo-digits/checkpoints", None),
    ("{runs}/grpo-digits/checkpoints/latest", None),
    ("{runs}/grpo-digits/checkpoints/step_000010", 10),
    ("{runs}/grpo-digits/checkpoints/step_000020/", 20),
    ("{runs}/grpo-digits/checkpoints/best", 10),
    ("grpo-digits@20", 20),
    ("grpo-digits@step_000020", 20),
    ("grpo-digits@best", 10),
    ("{runs}/grpo-digits@latest", None),
    ("{runs}/grpo-digits/@7", 7),
])
def test_ways_to_refer_to_a_run(runs, reference, step):
    assert locate(reference.format(runs=runs), runs) == Reference(runs / "grpo-digits", step)


def test_a_run_in_the_working_directory(runs, monkeypatch):
    monkeypatch.chdir(runs)
    assert locate("ppo-math", Path("elsewhere")) == Reference(Path("ppo-math"))
    monkeypatch.chdir(runs / "ppo-math")
    assert locate("checkpoints/step_000010") == Reference(Path("."), 10)
    assert locate(".") == Reference(Path("."))


def test_an_unknown_run_names_similar_ones(runs):
    with pytest.raises(UsageError, match=r"no run 'grpo-digit': .* a run in .*/runs/\. Did you mean grpo-digits\?"):
        locate("grpo-digit", runs)


def test_an_unknown_run_where_there_are_none(tmp_path):
    with pytest.raises(UsageError, match="neither a run directory nor the name of a run in") as error:
        locate("x", tmp_path / "runs")
    assert "Did you mean" not in str(error.value)


def test_a_directory_that_is_no_run(tmp_path):
    with pytest.raises(UsageError, match=r"is not a run directory \(it has no run.json\)"):
        locate(tmp_path, tmp_path)


@pytest.mark.parametrize("reference", ["{runs}/grpo-digits/checkpoints/worst", "grpo-digits@worst", "grpo-digits@"])
def test_what_is_no_checkpoint(runs, reference):
    with pytest.raises(UsageError, match=r"is not a checkpoint of .*grpo-digits: write .*grpo-digits@STEP, .*@best or .*@latest"):
        locate(reference.format(runs=runs), runs)


def test_a_run_without_a_best_checkpoint_says_how_to_have_one(runs):
    with pytest.raises(UsageError, match=r"ppo-math has no best checkpoint: it keeps one when checkpoint\.best=METRIC is set"):
        locate("ppo-math@best", runs)


def test_a_checkpoint_of_an_unknown_run_names_similar_runs(runs):
    with pytest.raises(UsageError, match=r"no run 'grpo-digit': .*Did you mean grpo-digits\?"):
        locate("grpo-digit@10", runs)


def test_a_run_whose_name_has_an_at_sign(runs):
    (runs / "a@7").mkdir()
    (runs / "a@7" / "run.json").write_text("{}")
    assert locate("a@7", runs) == Reference(runs / "a@7")
    assert locate("a@7@5", runs) == Reference(runs / "a@7", 5)


@pytest.mark.parametrize("content", ["", "step_x", "step_000010 and more", "\udcff"])
def test_a_pointer_that_names_no_checkpoint(tmp_path, content):
    (tmp_path / "best").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert pointed_step(tmp_path / "best") is None
    assert pointed_step(tmp_path / "nowhere") is None

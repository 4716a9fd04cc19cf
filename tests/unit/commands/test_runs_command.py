"""`rlinf runs` as a user calls it."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory


@pytest.fixture
def rlinf(tmp_path, monkeypatch):
    """Runs `rlinf runs WORDS` in a directory with the runs a (of 2 steps) and b (of 3, a fork of a)."""
    monkeypatch.chdir(tmp_path)
    for name, steps, info in (("a", 2, {}), ("b", 3, {"parent": {"run": "/runs/a", "step": 1}})):
        run = RunDirectory.create(tmp_path / "runs", name, False,
                                  f"name: {name}\nsteps: {steps}\nseed: {steps}\ncheckpoint:\n  best: reward/mean\n", info)
        with run.attempt(["rlinf", "train"]):
            run.metrics.write_text("".join(json.dumps(
                {"step": step, "time": 0.0, "reward/mean": step / 4, "timing/step_s": 2.0, "throughput/tokens_per_s": 1500.0,
                 "progress/tokens": 3000.0 * step, "actor/lr": 1e-6}) + "\n" for step in range(1, steps + 1)))
            checkpoints = Checkpoints(run.checkpoints, 2, "reward/mean")
            for step in range(1, steps + 1):
                with checkpoints.write(step, {"metrics": {"reward/mean": 1 / step}}) as path:
                    (path / "weights").write_text("x")
    record = tmp_path / "runs/a/run.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"created": "2020-01-01T00:00:00+00:00"}))

    def call(*words):
        return CliRunner().invoke(main, ["runs", *words], catch_exceptions=False)

    return call


def lines(result):
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("words", [[], ["list"], ["list", "--runs-dir", "runs"], ["--runs-dir", "runs"]])
def test_every_run_in_a_line(rlinf, words):
    header, b, a = lines(rlinf(*words))
    assert header == "name status steps reward tokens/s age size"
    assert re.fullmatch(r"b finished 3/3 0.25 → 0.75 1.5k \d+ s [\d.]+ kB", b)
    assert re.fullmatch(r"a finished 2/2 0.25 → 0.50 1.5k \d{4,} d [\d.]+ kB", a)


def test_no_runs(rlinf):
    assert lines(rlinf("list", "--runs-dir", "elsewhere")) == ["no runs in elsewhere/: rlinf train begins one"]
    assert json.loads(rlinf("--json", "--runs-dir", "elsewhere").stdout) == []


def test_the_list_as_json(rlinf):
    for words in (["--json"], ["list", "--json"]):
        b, a = json.loads(rlinf(*words).stdout)
        assert (a["name"], a["path"], a["status"], a["step"], a["steps"], a["reward"]) == ("a", "runs/a", "finished", 2, 2, 0.5)
        assert b["tokens_per_s"] == 1500.0


def test_one_run_with_how_to_go_on(rlinf):
    shown = lines(rlinf("show", "b"))
    assert shown[:3] == ["run runs/b", shown[1], "fork of /runs/a, step 1"]
    assert shown[1].startswith("status finished, 3/3 steps, ")
    assert any(line.startswith("attempts 1 ") and line.endswith("finished") for line in shown)
    saved = [line for line in shown if "reward/mean" in line and "B" in line]
    assert [line.split()[-1] for line in saved] == ["best", "0.50", "latest"]
    assert "step 3 reward/mean 0.75 reward" in shown
    assert "actor/lr 1e-06" in shown
    assert shown[-3:] == ["next rlinf eval runs/b", "rlinf export runs/b model/", "rlinf train --resume runs/b --steps 6"]


def test_one_run_as_json(rlinf):
    document = json.loads(rlinf("show", "runs/b", "--json").stdout)
    assert document["parent"] == {"run": "/runs/a", "step": 1}
    assert document["attempts"][0]["exit"] == "finished"
    assert [(one["step"], one["is_latest"], one["is_best"]) for one in document["checkpoints"]] == [
        (1, False, True), (2, False, False), (3, True, False)]
    assert document["metrics"]["reward/mean"] == 0.75


def test_a_damaged_checkpoint_is_shown_as_such(rlinf, tmp_path):
    (tmp_path / "runs/b/checkpoints/step_000002/state.json").write_text("{}")
    (damaged,) = [line for line in lines(rlinf("show", "b")) if "damaged" in line]
    assert damaged.startswith("step 2 ")
    assert "state.json has 2 bytes instead of" in damaged


def test_a_comparison(rlinf):
    shown = lines(rlinf("compare", "a", "b"))
    assert shown == [
        "setting a b", "steps 2 3", "seed 2 3", "",
        "reward/mean a b", "first 0.25 0.25", "final (last tenth) 0.50 0.75", "best 0.50 at step 2 0.75 at step 3",
        "step to 0.50 2 2", "tokens to 0.50 6.0k 6.0k", "time to 0.50 4.0 s 4.0 s", "steps 2 3", "tokens 6.0k 9.0k",
        "time 4.0 s 6.0 s", "tokens/s 1.5k 1.5k"]
    assert lines(rlinf("compare", "a", "a"))[0] == "the settings are the same"


def test_a_comparison_as_json(rlinf):
    document = json.loads(rlinf("compare", "a", "b", "--metric", "reward/mean", "--json").stdout)
    assert document["settings"] == {"steps": [2, 3], "seed": [2, 3]}
    assert [run["final"] for run in document["runs"]] == [0.5, 0.75]
    assert document["runs"][0]["path"] == "runs/a"

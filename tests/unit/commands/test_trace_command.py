"""`rlinf trace` as a user calls it."""

import json

import pytest
from click.testing import CliRunner

from rlinf_cli.commands import main
from rlinf_cli.flow.timeline import Call, CallTiming
from rlinf_cli.runs.breakdown import Placed, break_down
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.trace import TraceWriter, read_trace


@pytest.fixture
def rlinf(tmp_path, monkeypatch):
    """Runs `rlinf trace WORDS` beside a run `a` of three steps: on cpu:0 the rollout took all of the time, or half of it
    in the last step, on cpu:1 the reward waited for a quarter of it."""
    monkeypatch.chdir(tmp_path)
    run = RunDirectory.create(tmp_path / "runs", "a", False, "steps: 3\n", {})
    run.close()
    with TraceWriter(run.trace, 100, 0, {0: "node-0 cpu:0", 1: "node-0 cpu:1"}, print) as writer:
        for step in (1, 2, 3):
            calls = [Placed(Call("rollout", 0, "generate", CallTiming(step, 0.5 if step == 3 else 1.0)), (0,)),
                     Placed(Call("reward", 0, "score", CallTiming(step, 0.5, ((0.0, 0.25, "wait_data"),))), (1,))]
            writer.step(step, {}, break_down(calls, (0, 1), float(step), step + 1.0))

    def call(*words):
        return CliRunner().invoke(main, ["trace", *words])

    return call


def lines(result):
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]


def test_where_the_time_went(rlinf):
    assert lines(rlinf("a")) == [
        "steps 1 to 3 (3 of 3 that the trace holds), 1 s each",
        "device rollout reward wait_data idle",
        "node-0 cpu:0 83.3 % 0.0 % 0.0 % 16.7 %",
        "node-0 cpu:1 0.0 % 25.0 % 25.0 % 50.0 %",
        "mean 41.7 % 12.5 % 12.5 % 33.3 %",
        "each call: open runs/a/trace.json in ui.perfetto.dev"]


def test_the_last_steps(rlinf):
    found = lines(rlinf("runs/a", "--steps", "1"))
    assert found[0] == "steps 3 (1 of 3 that the trace holds), 1 s each"
    assert found[2] == "node-0 cpu:0 50.0 % 0.0 % 0.0 % 50.0 %"
    assert lines(rlinf("a", "--steps", "9"))[0].startswith("steps 1 to 3")


def test_as_json(rlinf):
    found = json.loads(rlinf("a", "--json").stdout)
    assert (found["trace"], found["steps"], found["step_s"]) == ("runs/a/trace.json", [1, 2, 3], 1.0)
    assert found["devices"]["node-0 cpu:1"]["wait_data"] == 0.25
    assert found["mean"]["reward"] == 0.125
    for times in found["devices"].values():
        assert sum(times.values()) == pytest.approx(1.0)


def test_a_copy(rlinf, tmp_path):
    assert lines(rlinf("a", "--out", "copy.json"))[-1] == "each call: open copy.json in ui.perfetto.dev"
    assert len(read_trace(tmp_path / "copy.json")) == 3


def test_a_run_without_a_trace(rlinf, tmp_path):
    (tmp_path / "runs/a/trace.json").unlink()
    result = rlinf("a")
    assert result.exit_code == 2
    assert "there is no runs/a/trace.json: it comes with the first step of a run, unless log.trace=0" in result.stderr


def test_no_such_run(rlinf):
    result = rlinf("b")
    assert result.exit_code == 2
    assert "no run 'b'" in result.stderr

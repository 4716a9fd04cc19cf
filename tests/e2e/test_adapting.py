"""The default placement, `auto`, from the command line, with components whose durations are declared (those of the benchmarks).
The run measures its first steps and stays; then responses get a long tail, and it moves to devices apart, which is faster."""

import json
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.e2e

EMULATION = Path(__file__).parents[2] / "scripts/bench/emulation"
STEPS = 2000
"""So many that what they save outweighs a move on any machine; the test ends the run some steps after it has moved."""
RUN = ["train", "--algo", "emulated", "--engine", "emulated", "--trainer", "emulated", "--name", "run", "--devices", "cpu:2",
       "rollout.prompts=32", "rollout.group_size=1", "rollout.max_new_tokens=240", "engine.slots=8", "engine.unit_s=0.2",
       "engine.lengths=lognormal", "engine.onset=6", "trainer.unit_s=0.02", "algorithm.minibatches=1", "rollout.staleness=4",
       "log.samples=32", "checkpoint.every=0", "--steps", STEPS]


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_whose_responses_change_moves_to_a_better_placement_and_loses_nothing(rlinf, start, tmp_path):
    run, running = tmp_path / "runs/run", start(*RUN, PYTHONPATH=str(EMULATION), COLUMNS="200")
    running.wait_for(lambda: "changes after step" in running.log.read_text(), timeout=300)
    before = len(rows_of(run / "metrics.jsonl"))
    running.wait_for(lambda: len(rows_of(run / "metrics.jsonl")) >= before + 8)
    running.interrupt()
    code, output = running.end()
    assert code == 130, output
    assert "temporal: rollout, reward, actor share cpu:0-1   (no profile yet: the first 5 steps are measured" in output
    first, *others = (line for line in output.splitlines() if line.startswith("plan") and "predicted" in line)
    assert "stays temporal: rollout, reward, actor share cpu:0-1: nothing is predicted to be " in first
    (moved,) = (line for line in others if "changes after step" in line)
    assert "longer than predicted" in moved
    assert ": spatial: rollout, reward | actor on cpu:0 | cpu:1 — predicted" in moved
    assert "Warning" not in output
    rows, samples = rows_of(run / "metrics.jsonl"), rows_of(run / "samples.jsonl")
    steps = len(rows)
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    assert sorted(int(row["id"].partition("-")[2].partition("/")[0]) for row in samples) == list(range(32 * steps))
    assert max(row["rollout/staleness/max"] for row in rows) <= 4
    assert [row["step"] for row in rows if "plan/error_frac" in row] == list(range(6, steps + 1))
    assert yaml.safe_load((run / "plan.yaml").read_text())["actor"] == [[1]]
    profile = json.loads((run / "profile.json").read_text())
    assert profile["roles"]["rollout"]["slots"] == 8
    on = rlinf("train", "--resume", "run", "--dry-run", PYTHONPATH=str(EMULATION), check=True)
    assert "spatial: rollout, reward | actor on cpu:0 | cpu:1   (by this run's own profile: predicted" in on.stdout

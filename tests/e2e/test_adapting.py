"""The default placement, `auto`, from the command line, with components whose durations are declared (those of the benchmarks).
The run measures its first steps and stays; then responses get a long tail, and it moves to devices apart, which is faster."""

import json
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.e2e

EMULATION = Path(__file__).parents[2] / "scripts/bench/emulation"
STEPS = 64
"""So many that what they save, some 30 s, outweighs a move on a busy machine too."""
RUN = ["train", "--algo", "emulated", "--engine", "emulated", "--trainer", "emulated", "--name", "run", "--devices", "cpu:2",
       "rollout.prompts=32", "rollout.group_size=1", "rollout.max_new_tokens=240", "engine.slots=8", "engine.unit_s=0.2",
       "engine.lengths=lognormal", "engine.onset=6", "trainer.unit_s=0.02", "algorithm.minibatches=1", "rollout.staleness=4",
       "log.samples=32", "checkpoint.every=0", "--steps", STEPS]


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_whose_responses_change_moves_to_a_better_placement_and_loses_nothing(rlinf, tmp_path):
    done = rlinf(*RUN, timeout=400, PYTHONPATH=str(EMULATION))
    assert done.returncode == 0, done.stderr
    assert "temporal: rollout, reward, actor share cpu:0-1   (no profile yet: the first 5 steps are measured" in done.stderr
    first, *others = (line for line in done.stderr.splitlines() if line.startswith("plan") and "predicted" in line)
    assert "stays temporal: rollout, reward, actor share cpu:0-1: nothing is predicted to be " in first
    (moved,) = (line for line in others if "changes after step" in line)
    assert "longer than predicted" in moved
    assert ": spatial: rollout, reward | actor on cpu:0 | cpu:1 — predicted" in moved
    assert "Warning" not in done.stderr
    run = tmp_path / "runs/run"
    rows, samples = rows_of(run / "metrics.jsonl"), rows_of(run / "samples.jsonl")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert sorted(int(row["id"].partition("-")[2].partition("/")[0]) for row in samples) == list(range(32 * STEPS))
    assert max(row["rollout/staleness/max"] for row in rows) <= 4
    assert [row["step"] for row in rows if "plan/error_frac" in row] == list(range(6, STEPS + 1))
    assert yaml.safe_load((run / "plan.yaml").read_text())["actor"] == [[1]]
    profile = json.loads((run / "profile.json").read_text())
    assert profile["roles"]["rollout"]["slots"] == 8
    on = rlinf("train", "--resume", "run", "--steps", STEPS + 1, "--dry-run", PYTHONPATH=str(EMULATION), check=True)
    assert "spatial: rollout, reward | actor on cpu:0 | cpu:1   (by this run's own profile: predicted" in on.stdout

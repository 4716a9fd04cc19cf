"""`placement=auto` from the command line, with components whose durations are declared (those of the benchmarks): the run
measures its first steps and moves to devices apart where that is faster."""

import json
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.e2e

EMULATION = Path(__file__).parents[2] / "scripts/bench/emulation"
STEPS = 45
"""So many that what they save, some 25 s, outweighs a move on a busy machine too."""
RUN = ["train", "--algo", "emulated", "--engine", "emulated", "--trainer", "emulated", "--name", "run", "--devices", "cpu:2",
       "placement=auto", "rollout.prompts=32", "rollout.group_size=1", "rollout.max_new_tokens=240", "engine.slots=8",
       "engine.lengths=lognormal", "engine.unit_s=0.2", "trainer.unit_s=0.025", "algorithm.minibatches=1",
       "rollout.staleness=4", "log.samples=32", "checkpoint.every=0", "--steps", STEPS]


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_moves_to_a_better_placement_and_loses_nothing(rlinf, tmp_path):
    done = rlinf(*RUN, PYTHONPATH=str(EMULATION))
    assert done.returncode == 0, done.stderr
    assert "there is no profile yet: the first 5 steps are measured as they are trained" in done.stderr
    assert "changes after step 5: spatial: rollout, reward | actor on cpu:0 | cpu:1 — predicted" in done.stderr
    assert "Warning" not in done.stderr
    run = tmp_path / "runs/run"
    rows, samples = rows_of(run / "metrics.jsonl"), rows_of(run / "samples.jsonl")
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert sorted(int(row["id"].partition("-")[2].partition("/")[0]) for row in samples) == list(range(32 * STEPS))
    assert max(row["rollout/staleness/max"] for row in rows) <= 4
    predicted = [row["plan/predicted_s"] for row in rows if "plan/predicted_s" in row]
    assert predicted[-1] < predicted[0], "of the placement that was left, and of the one that it moved to"
    assert yaml.safe_load((run / "plan.yaml").read_text())["actor"] == [[1]]
    profile = json.loads((run / "profile.json").read_text())
    assert profile["roles"]["rollout"]["slots"] == 8
    assert len(profile["lengths"]) == 32 * 4

"""`placement=auto` from the command line, with components whose durations are declared (those of the benchmarks): the run
measures its first steps and moves to devices apart where that is faster."""

import json
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.e2e

EMULATION = Path(__file__).parents[2] / "scripts/bench/emulation"
STEPS = 50
RUN = ["train", "--algo", "emulated", "--engine", "emulated", "--trainer", "emulated", "--name", "run", "--devices", "cpu:2",
       "placement=auto", "rollout.prompts=32", "rollout.group_size=1", "rollout.max_new_tokens=240", "engine.slots=8",
       "algorithm.minibatches=1", "rollout.staleness=4", "log.samples=32", "checkpoint.every=0", "--steps", STEPS]


def test_a_run_moves_to_a_better_placement_and_loses_nothing(rlinf, tmp_path):
    done = rlinf(*RUN, "engine.lengths=lognormal", "engine.unit_s=0.2", "trainer.unit_s=0.025", PYTHONPATH=str(EMULATION))
    assert done.returncode == 0, done.stderr
    assert "temporal: rollout, reward, actor share cpu:0-1 (no profile yet: measuring the first steps)" in done.stderr
    assert "changes after step 5: spatial: rollout, reward | actor on cpu:0 | cpu:1 — predicted" in done.stderr
    run = tmp_path / "runs/run"
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert sorted(int(row["id"].split("-")[1].split("/")[0]) for row in samples) == list(range(32 * STEPS))
    assert max(row["rollout/staleness/max"] for row in rows) <= 4
    moved = next(place for place, row in enumerate(rows) if row.get("plan/predicted_s", 9) < rows[6]["plan/predicted_s"])
    assert moved < 12
    assert yaml.safe_load((run / "plan.yaml").read_text())["actor"] == [[1]]
    profile = json.loads((run / "profile.json").read_text())
    assert profile["roles"]["rollout"]["slots"] == 8
    assert len(profile["lengths"]) == 32 * 4

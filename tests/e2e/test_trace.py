"""Where the time of a run goes (scenario C2), from a run with a reward that takes its time."""

import json
from itertools import pairwise

import pytest

pytestmark = pytest.mark.e2e

SLOW = """
import time

def score(sample):
    time.sleep(0.025)  # 50 ms a group of two
    return float(sample.response.strip() == sample.answer)
"""
GROUPS = 6
TAKES = GROUPS * 0.05
WORDS = ("--reward", "slow.py:score", "--devices", "cpu:2", f"rollout.prompts={GROUPS}", "rollout.group_size=2",
         "rollout.max_new_tokens=2", "checkpoint.every=2")
NO_PART = ("timing/step_s", "timing/eval_s")


def rows(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["step"]]


def timing(row):
    return {name: value for name, value in row.items() if name.startswith("timing/")}


def test_every_second_of_each_device_is_accounted_for_and_goes_on_after_a_resume(rlinf, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    run = tmp_path / "runs/slow"
    rlinf("train", "--name", "slow", "--steps", "3", *WORDS, "eval.every=2", "eval.prompts=4", check=True)
    for row in rows(run):
        explained = sum(value for name, value in timing(row).items() if name not in NO_PART)
        assert abs(explained - row["timing/step_s"]) <= 0.02 * row["timing/step_s"]
        # one of two devices has the reward; on the other one, and there before and after, the actor waits for it
        assert 0.9 * TAKES / 2 <= row["timing/reward_s"] <= row["timing/step_s"] / 2
        assert row["timing/wait_data_s"] >= 0.8 * TAKES / 2
        assert row["timing/idle_s"] <= row["timing/step_s"] - TAKES
        for role in ("rollout", "actor", "sync"):
            assert row[f"timing/{role}_s"] > 0
    assert rows(run)[1]["timing/eval_s"] > 4 * 0.025  # and no part of the step

    rlinf("train", "--resume", "slow", "--steps", "4", check=True)
    found = json.loads(rlinf("trace", "slow", "--steps", "2", "--out", "copy.json", "--json", check=True).stdout)
    assert found["steps"] == [3, 4]
    assert set(found["devices"]) == {"node-0 cpu:0", "node-0 cpu:1"}
    for times in found["devices"].values():
        assert sum(times.values()) == pytest.approx(found["step_s"], rel=0.02)
    assert found["devices"]["node-0 cpu:0"]["reward"] >= 0.9 * TAKES
    assert found["devices"]["node-0 cpu:1"]["wait_data"] >= 0.8 * TAKES
    assert found["mean"]["reward"] == pytest.approx(sum(row["timing/reward_s"] for row in rows(run)[2:]) / 2, abs=1e-4)

    events = json.loads((tmp_path / "copy.json").read_text())["traceEvents"]
    steps = [event for event in events if event["ph"] == "X" and event["pid"] == 1 and event["name"].startswith("step")]
    assert [event["name"] for event in steps] == [f"step {number}" for number in (1, 2, 3, 4)]
    assert all(before["ts"] + before["dur"] <= after["ts"] + 1 for before, after in pairwise(steps))
    assert [event["name"] for event in events if event["name"] in ("evaluation", "checkpoint")].count("checkpoint") == 3
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert threads >= {"rollout[0]", "rollout[1]", "rollout[1] beside", "reward[0]", "actor[0]", "actor[1]"}
    for row, step in zip(rows(run), steps):
        assert step["dur"] / 1e6 == pytest.approx(row["timing/step_s"], abs=1e-5)

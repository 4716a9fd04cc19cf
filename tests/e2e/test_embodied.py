"""A policy in an environment, by the command: trained with its roles apart, gone on with, and evaluated."""

import json

import pytest

pytestmark = pytest.mark.e2e

OF_THE_CLOCK = ("time", "timing/", "throughput/", "memory/", "plan/")
COMMON = ("--env", "CartPole-v1", "env.count=8", "rollout.steps=32", "deterministic=true", "checkpoint.every=2",
          "checkpoint.keep_last=9", "eval.every=4", "eval.episodes=6", "eval.success=20")


def rows(run):
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith(OF_THE_CLOCK)} for row in found]


def test_trains_goes_on_as_if_it_had_not_been_stopped_and_is_evaluated(rlinf, tmp_path):
    apart = ("--placement", "environment:0,rollout:1,actor:0-1", "cluster.fused=false", "--devices", "cpu:2")
    rlinf("train", *COMMON, *apart, "--steps", "4", "--name", "a", check=True)
    whole = rows(tmp_path / "runs/a")
    assert [row["step"] for row in whole] == [0, 1, 2, 3, 4]
    assert all(row["env/episodes"] > 0 for row in whole[1:])
    assert whole[4]["progress/env_steps"] == 4 * 8 * 32

    rlinf("train", "--resume", "a@2", "--steps", "4", *apart, check=True)
    assert rows(tmp_path / "runs/a") == whole

    document = json.loads(rlinf("eval", "a", "eval.parallel=3", "--json", "--devices", "cpu:1", "--out", "all.jsonl",
                                check=True).stdout)
    [task] = document["tasks"]
    assert task["successes"] == whole[4]["eval/CartPole-v1/successes"]
    assert task["trials"] == len(task["episodes"]) == 6
    written = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert [row["return"] for row in written] == [row["return"] for row in task["episodes"]]
    assert task["reward"] == pytest.approx(whole[4]["eval/CartPole-v1/reward/mean"])

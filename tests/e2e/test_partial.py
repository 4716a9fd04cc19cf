"""Responses that outlive the weights they began with, and more prompts than are trained."""

import json

import pytest

pytestmark = pytest.mark.e2e


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines if "step" in json.loads(line)]


def test_running_ahead_with_a_surplus(rlinf, tmp_path):
    rlinf("train", "--algo", "grpo", "--steps", 4, "--name", "run", "--placement", "spatial", "rollout.staleness=2",
          "rollout.in_flight=recompute", "rollout.overprovision=0.5", "rollout.prompts=8", "rollout.group_size=4",
          "rollout.max_new_tokens=48", check=True)
    steps = metrics(tmp_path / "runs" / "run")
    assert len(steps) == 4
    for number, step in enumerate(steps):
        assert step["rollout/staleness/max"] <= min(number, 2)
        # of 12 prompts those were trained that were answered first, whole groups of them
        assert step["progress/samples"] == 32 * (number + 1)
        assert step["rollout/overprovision/dropped"] <= 16
        assert step["rollout/overprovision/dropped_frac"] <= 1 / 3
        assert abs(step["rollout/overprovision/length_bias"]) < 48
        assert step["rollout/logp_diff/max"] < 1e-3
    assert sum(step["rollout/overprovision/dropped"] for step in steps) > 0

"""A step that is trained while it is being generated, on two ranks, and one whose roles leave the device to each other."""

import json

import pytest

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("modes")]

WORDS = ("--name", "run", "--steps", "3", "--reward", "length", "reward.target=2", "reward.tolerance=8", "trainer.lr=1e-3",
         "rollout.max_new_tokens=10", "rollout.prompts=8", "log.samples=1000", "algorithm.minibatches=1", "--devices", "cpu:2")


def run(rlinf_in, directory, *words):
    rlinf_in(directory, ["train", *WORDS, *words], check=True)
    return [json.loads(line) for line in (directory / "runs/run/metrics.jsonl").read_text().splitlines()]


def test_training_while_generating_is_training_afterwards(rlinf_in, tmp_path_factory):
    streamed = run(rlinf_in, tmp_path_factory.mktemp("streamed"), "placement=rollout+reward:0,actor:1+1")
    moving = run(rlinf_in, tmp_path_factory.mktemp("moving"), "placement=rollout+reward+actor:0", "deterministic=true",
                 "trainer.offload=file", "engine.offload=weights")
    for one, other in zip(streamed, moving, strict=True):
        assert 1 <= one["actor/chunk"] <= 8
        assert "actor/chunk" not in other
        assert one["reward/mean"] == other["reward/mean"]
        assert one["actor/loss"] == pytest.approx(other["actor/loss"], rel=1e-5, abs=1e-6)
        assert one["actor/grad_norm"] == pytest.approx(other["actor/grad_norm"], rel=1e-5)
        assert max(one["rollout/logp_diff/max"], other["rollout/logp_diff/max"]) < 1e-4
    assert streamed[0]["actor/grad_norm"] == pytest.approx(moving[0]["actor/grad_norm"], rel=1e-6)
    assert all(row["timing/offload_s"] > 0 and row["timing/onload_s"] > 0 for row in moving[1:])

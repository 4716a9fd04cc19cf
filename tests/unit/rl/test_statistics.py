"""Which samples are trained (scenario N3), and a step's metrics."""

import numpy as np
import pytest

from rlinf_cli.rl.statistics import describe_left_out, left_out, length_metrics, step_metrics, trainable
from rlinf_cli.rl.trajectory import Sample

NAN, INF = float("nan"), float("inf")


def sample(name, group="g", reward=0.0, length=2, version=0, finish="stop", **more):
    return Sample(name, group, np.zeros(3, np.int32), np.zeros(length, np.int32), np.ones(length, np.bool_),
                  np.zeros(length, np.float32), np.full(length, version, np.int32), finish, reward=reward, **more)


def ids(samples):
    return [one.id for one in samples]


@pytest.mark.parametrize("reward", [NAN, INF, -INF])
def test_a_reward_that_is_no_number_leaves_only_its_sample_out(reward):
    samples = [sample("a"), sample("b", reward=reward), sample("c"), sample("d", "h"), sample("e", "h")]
    assert ids(trainable(samples)) == ["a", "c", "d", "e"]
    assert left_out(samples) == {"b": f"its reward is {reward}"}


def test_the_last_one_of_a_group_is_left_out_with_the_others():
    samples = [sample("a"), sample("b", reward=NAN, error="timeout after 5 s"), sample("c", "h"), sample("d", "h")]
    assert ids(trainable(samples)) == ["c", "d"]
    assert left_out(samples) == {"b": "timeout after 5 s", "a": "no other sample of its prompt has a reward"}


def test_each_reason_is_told_with_its_samples():
    samples = [*(sample(f"0-1/{n}", reward=NAN, error="ValueError: no unit") for n in range(5)), sample("0-1/5"), sample("0-1/6"),
               sample("0-2/0", "h", NAN), sample("0-2/1", "h", NAN), sample("0-2/2", "h")]
    told = describe_left_out(left_out(samples))
    assert told == {
        "ValueError: no unit": "5 samples (0-1/0, 0-1/1, 0-1/2, ...): ValueError: no unit",
        "its reward is nan": "2 samples (0-2/0, 0-2/1): its reward is nan",
        "no other sample of its prompt has a reward": "sample 0-2/2: no other sample of its prompt has a reward",
    }
    assert describe_left_out(left_out(samples), {"ValueError: no unit", "its reward is nan"}).keys() == {
        "no other sample of its prompt has a reward"}
    assert describe_left_out({}) == {}


def test_a_group_of_one_by_choice_is_trained():
    assert ids(trainable([sample("a", "g", 1), sample("b", "h", 1)])) == ["a", "b"]


def test_order_is_kept_whatever_the_groups():
    samples = [sample("d", "h"), sample("a"), sample("c", "h"), sample("b")]
    assert ids(trainable(samples)) == ["d", "a", "c", "b"]


def test_reward_metrics_by_hand():
    samples = [sample("a", "g", 1.0, rewards={"exact": 1.0, "ended": 1.0}),
               sample("b", "g", 0.0, rewards={"exact": 0.0}), sample("c", "h", 0.5, rewards={"exact": NAN}),
               sample("d", "h", 0.5), sample("e", "g", NAN, error="boom")]
    got = step_metrics(samples, 0)
    assert got["reward/mean"] == pytest.approx(0.5)
    assert got["reward/std"] == pytest.approx(np.std([1, 0, 0.5, 0.5]))
    assert (got["reward/min"], got["reward/max"]) == (0.0, 1.0)
    assert got["reward/exact/mean"] == pytest.approx(0.5)
    assert got["reward/ended/mean"] == 1.0
    assert got["reward/errors"] == 1.0
    assert got["reward/zero_std_frac"] == 0.5


def test_length_metrics_by_hand():
    samples = [sample("a", length=2), sample("b", length=6, finish="length"), sample("c", length=1, finish="abort"),
               sample("d", length=3)]
    got = step_metrics(samples, 0)
    assert got["rollout/response_len/mean"] == 3.0
    assert got["rollout/response_len/max"] == 6.0
    assert got["rollout/response_len/clip_frac"] == 0.25
    assert got["rollout/prompt_len/mean"] == 3.0
    assert got["rollout/aborted"] == 1.0


def test_lengths_can_be_had_without_rewards():
    samples = [sample("a", length=2, reward=NAN), sample("b", length=6, reward=NAN)]
    assert set(length_metrics(samples)) == {name for name in step_metrics(samples, 0) if name.partition("_len")[1]}
    assert length_metrics([]) == {}


def test_staleness_counts_trained_tokens_only():
    mixed = sample("a", length=4)
    mixed.versions[:] = [0, 7, 8, 9]
    mixed.mask[0] = False
    got = step_metrics([mixed, sample("b", length=1, version=9)], 9)
    assert got["rollout/staleness/mean"] == pytest.approx((2 + 1 + 0 + 0) / 4)
    assert got["rollout/staleness/max"] == 2.0


def test_every_reward_missing_is_counted_and_gives_no_mean():
    got = step_metrics([sample("a", reward=NAN, rewards={"exact": NAN}), sample("b", reward=NAN)], 3)
    assert got["reward/errors"] == 2.0
    assert got["reward/zero_std_frac"] == 0.0
    assert not any(name.endswith("mean") for name in got if name.startswith("reward/"))
    assert all(np.isfinite(value) for value in got.values())


def test_empty_responses_and_no_samples():
    assert step_metrics([], 0) == {}
    got = step_metrics([sample("a", length=0, finish="abort")], 5)
    assert got["rollout/response_len/mean"] == 0.0
    assert got["rollout/staleness/max"] == 0.0


def test_all_values_are_plain_floats():
    got = step_metrics([sample("a", reward=1, rewards={"x": 1.0}), sample("b", reward=0)], 1)
    assert {type(value) for value in got.values()} == {float}

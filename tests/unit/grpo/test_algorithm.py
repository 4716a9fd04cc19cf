"""GRPO's advantages, loss and metrics with its defaults, against values worked out by hand."""

import math

import pytest
import torch


def test_on_policy_the_gradient_is_the_policy_gradient(variant, make_inputs, step):
    loss, gradient, metrics = step(variant(), make_inputs([1.0, 1.0, 1.0], [0.5, -1.0, 2.0], [0.5, 0.25, 0.25]))
    assert loss == pytest.approx(-(0.25 - 0.25 + 0.5))
    assert gradient == pytest.approx([-0.25, 0.25, -0.5])
    assert metrics == pytest.approx({"actor/ratio": 1.0, "actor/clip_frac": 0.0, "actor/clip_low_frac": 0.0,
                                     "actor/clip_high_frac": 0.0, "actor/kl": 0.0})


def test_clipped_by_hand(variant, make_inputs, step):
    given = make_inputs([1.5, 0.5, 1.5, 0.5, 1.1], [1.0, -1.0, -1.0, 1.0, 2.0], [0.2] * 5)
    loss, gradient, metrics = step(variant(), given)
    assert loss == pytest.approx(0.2 * (-1.28 + 0.8 + 1.5 - 0.5 - 2.2))
    assert gradient == pytest.approx([0, 0, 0.3, -0.1, -0.44])
    kl = [ratio - 1 - math.log(ratio) for ratio in (1.5, 0.5, 1.5, 0.5, 1.1)]
    assert metrics == pytest.approx(
        {"actor/ratio": 1.02, "actor/clip_frac": 0.4, "actor/clip_low_frac": 0.2, "actor/clip_high_frac": 0.2,
         "actor/kl": sum(kl) / 5}, rel=1e-5)


@pytest.mark.parametrize(("high", "expected"), [(0.6, -1.5), (0.1, -1.1)])
def test_the_clip_is_configured(variant, make_inputs, step, high, expected):
    assert step(variant(clip_high=high), make_inputs([1.5], [1.0], [1.0]))[0] == pytest.approx(expected)


def test_dual_clip(variant, make_inputs, step):
    given = make_inputs([5.0, 2.0, 5.0], [-1.0, -1.0, 1.0], [0.5, 0.25, 0.25])
    loss, gradient, metrics = step(variant(dual_clip=3.0), given)
    assert loss == pytest.approx(0.5 * 3.0 + 0.25 * 2.0 - 0.25 * 1.28)
    assert gradient == pytest.approx([0, 0.5, 0])
    assert metrics["actor/clip_frac"] == pytest.approx(0.75)
    assert metrics["actor/clip_high_frac"] == pytest.approx(0.25)


def test_an_entropy_bonus_pulls_towards_entropy(variant, make_inputs, step):
    entropy = torch.tensor([1.0, 3.0], requires_grad=True)
    algorithm = variant(entropy_coef=0.1)
    assert algorithm.needs_entropy
    loss, _, _ = step(algorithm, make_inputs([1.0, 1.0], [0.0, 0.0], [0.5, 0.5], entropy=entropy))
    assert loss == pytest.approx(-0.1 * 2.0)
    assert entropy.grad.tolist() == pytest.approx([-0.05, -0.05])


def test_advantages(variant, make_returns):
    rewards = make_returns([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    got, metrics = variant().advantages(rewards)
    assert got.tolist() == pytest.approx([0.5 / (0.5**0.5 + 1e-4), -0.5 / (0.5**0.5 + 1e-4), 0, 0])
    assert got[2:].tolist() == [0.0, 0.0]
    assert metrics == {}


def test_by_default_everything_takes_part_and_nothing_more_is_asked_for(variant, make_returns):
    algorithm = variant()
    assert algorithm.takes_part(make_returns([1.0, 1.0], [0, 0], truncated=[1])).tolist() == [True, True]
    assert (algorithm.aggregation, algorithm.rounds, algorithm.supervised) == ("token-mean", 1, False)
    assert (algorithm.needs_entropy, algorithm.needs_reference, algorithm.needs_recompute) == (False, False, False)


def test_what_is_asked_for(variant):
    algorithm = variant(aggregation="sequence-mean", kl_coef=0.1, importance_cap=2.0, rounds=3)
    assert (algorithm.aggregation, algorithm.rounds) == ("sequence-mean", 3)
    assert algorithm.needs_reference
    assert algorithm.needs_recompute
    # the driver reads these from the configuration, which does not import torch
    keys = algorithm.config
    assert (keys.needs_reference, keys.needs_recompute, keys.needs_entropy, keys.rounds) == (True, True, False, 3)

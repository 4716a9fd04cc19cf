"""GRPO's advantages, loss and metrics, against values worked out by hand."""

import math

import pytest
import torch

from rlinf_cli.api import LossInputs, Returns
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig


def inputs(ratios, advantages, weights):
    old = torch.full((len(ratios),), -2.0)
    logprobs = (old + torch.tensor([math.log(ratio) for ratio in ratios])).requires_grad_()
    samples = torch.zeros(len(ratios), dtype=torch.int64)
    return LossInputs(logprobs, old, torch.tensor(advantages), torch.tensor(weights), samples)


def returns(rewards, groups):
    return Returns(torch.tensor(rewards), torch.tensor(groups), torch.ones(len(rewards), dtype=torch.int64))


def test_on_policy_the_gradient_is_the_policy_gradient():
    given = inputs([1.0, 1.0, 1.0], [0.5, -1.0, 2.0], [0.5, 0.25, 0.25])
    loss, metrics = GRPO(GRPOConfig()).loss(given)
    loss.backward()
    assert loss.item() == pytest.approx(-(0.25 - 0.25 + 0.5))
    assert given.logprobs.grad.tolist() == pytest.approx([-0.25, 0.25, -0.5])
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {"actor/ratio": 1.0, "actor/clip_frac": 0.0, "actor/kl": 0.0})


def test_clipped_by_hand():
    given = inputs([1.5, 0.5, 1.5, 0.5, 1.1], [1.0, -1.0, -1.0, 1.0, 2.0], [0.2] * 5)
    loss, metrics = GRPO(GRPOConfig(clip_low=0.2, clip_high=0.28)).loss(given)
    loss.backward()
    assert loss.item() == pytest.approx(0.2 * (-1.28 + 0.8 + 1.5 - 0.5 - 2.2))
    assert given.logprobs.grad.tolist() == pytest.approx([0, 0, 0.3, -0.1, -0.44])
    kl = [ratio - 1 - math.log(ratio) for ratio in (1.5, 0.5, 1.5, 0.5, 1.1)]
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {"actor/ratio": 1.02, "actor/clip_frac": 0.4, "actor/kl": sum(kl) / 5}, rel=1e-5)
    assert not any(value.requires_grad for value in metrics.values())


@pytest.mark.parametrize(("high", "expected"), [(0.6, -1.5), (0.1, -1.1)])
def test_the_clip_is_configured(high, expected):
    loss, _ = GRPO(GRPOConfig(clip_high=high)).loss(inputs([1.5], [1.0], [1.0]))
    assert loss.item() == pytest.approx(expected)


def test_losses_of_parts_add_up():
    whole = inputs([1.5, 0.5, 1.0], [1.0, -1.0, 2.0], [0.5, 0.3, 0.2])
    parts = [inputs([1.5], [1.0], [0.5]), inputs([0.5, 1.0], [-1.0, 2.0], [0.3, 0.2])]
    loss, metrics = GRPO(GRPOConfig()).loss(whole)
    split = [GRPO(GRPOConfig()).loss(part) for part in parts]
    assert sum(value.item() for value, _ in split) == pytest.approx(loss.item())
    for name, value in metrics.items():
        assert sum(part[name].item() for _, part in split) == pytest.approx(value.item())


def test_advantages():
    got = GRPO(GRPOConfig()).advantages(returns([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]))
    assert got.tolist() == pytest.approx([0.5 / (0.5**0.5 + 1e-4), -0.5 / (0.5**0.5 + 1e-4), 0, 0])
    assert got[2:].tolist() == [0.0, 0.0]
    plain = GRPO(GRPOConfig(normalize_std=False)).advantages(returns([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]))
    assert plain.tolist() == [0.5, -0.5, 0, 0]


def test_the_aggregation_is_the_configured_one():
    assert GRPO(GRPOConfig()).aggregation == "token-mean"
    assert GRPO(GRPOConfig(aggregation="sequence-mean")).aggregation == "sequence-mean"
    assert not GRPO(GRPOConfig()).needs_entropy

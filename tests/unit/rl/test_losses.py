"""Token losses, against values worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.losses import clipped_surrogate, importance_weights

steady = settings(deadline=None, derandomize=True)


def surrogate(ratio, advantage, **more):
    logprobs, old, advantages = torch.tensor([[math.log(ratio)], [0.0], [advantage]], dtype=torch.float64)
    logprobs.requires_grad_()
    result = clipped_surrogate(logprobs, old, advantages, clip_low=0.2, clip_high=0.28, **more)
    result.losses.sum().backward()
    return result, logprobs.grad.item()


@pytest.mark.parametrize(("ratio", "advantage", "loss", "gradient", "clipped"), [
    (1.0, 2.0, -2.0, -2.0, False),      # on-policy: the policy gradient
    (1.0, -2.0, 2.0, 2.0, False),
    (1.1, 2.0, -2.2, -2.2, False),      # inside the clip
    (0.9, -2.0, 1.8, 1.8, False),
    (1.5, 2.0, -2.56, 0.0, True),       # better than the clip lets it count: held at 1.28
    (0.5, -2.0, 1.6, 0.0, True),        # held at 0.8
    (0.5, 2.0, -1.0, -1.0, False),      # worse than before: never held
    (1.5, -2.0, 3.0, 3.0, False),
])
def test_by_hand(ratio, advantage, loss, gradient, clipped):
    result, got = surrogate(ratio, advantage)
    assert result.losses.item() == pytest.approx(loss)
    assert result.ratio.item() == pytest.approx(ratio)
    assert not result.ratio.requires_grad
    assert got == pytest.approx(gradient)
    assert result.clipped.item() is clipped


@pytest.mark.parametrize(("ratio", "advantage", "loss", "gradient", "clipped"), [
    (5.0, -2.0, 6.0, 0.0, True),        # bounded at 3 * 2
    (2.0, -2.0, 4.0, 4.0, False),
    (5.0, 2.0, -2.56, 0.0, True),       # a positive advantage knows the first clip only
    (0.5, 2.0, -1.0, -1.0, False),
])
def test_dual_clip_by_hand(ratio, advantage, loss, gradient, clipped):
    result, got = surrogate(ratio, advantage, dual_clip=3.0)
    assert (result.losses.item(), got) == pytest.approx((loss, gradient))
    assert result.clipped.item() is clipped
    assert result.clipped_low.item() is False


def test_which_bound_holds_a_token():
    logprobs = torch.tensor([1.5, 0.5, 5.0, 1.5, 1.0]).log()
    advantages = torch.tensor([1.0, -1.0, -1.0, -1.0, 1.0])
    result = clipped_surrogate(logprobs, torch.zeros(5), advantages, 0.2, 0.28, dual_clip=3.0)
    assert result.clipped_high.tolist() == [True, False, False, False, False]
    assert result.clipped_low.tolist() == [False, True, False, False, False]
    assert result.clipped.tolist() == [True, True, True, False, False]


def test_the_ratio_of_a_sequence_is_the_geometric_mean():
    # sequence 0: tokens with ratios 2 and 1/2, so 1; sequence 1: 4 and 1 and 1/2, so the cube root of 2
    logprobs = torch.tensor([2.0, 4.0, 0.5, 1.0, 0.5]).log().requires_grad_()
    samples = torch.tensor([0, 1, 0, 1, 1])
    result = clipped_surrogate(logprobs, torch.zeros(5), torch.tensor([3.0, 2.0, 3.0, 2.0, 2.0]), 0.2, 0.5,
                               samples=samples)
    root = 2 ** (1 / 3)
    assert result.ratio.tolist() == pytest.approx([1, root, 1, root, root])
    result.losses.sum().backward()
    # d ratio / d logprob = ratio / length, and each of the sequence's tokens has the ratio
    assert logprobs.grad.tolist() == pytest.approx([-3, -2 * root, -3, -2 * root, -2 * root])


def test_a_sequence_is_clipped_as_one():
    logprobs = torch.tensor([9.0, 1.0, 1.0, 9.0]).log().requires_grad_()
    result = clipped_surrogate(logprobs, torch.zeros(4), torch.ones(4), 0.2, 0.28, samples=torch.tensor([0, 0, 1, 1]))
    result.losses.sum().backward()
    assert result.clipped.tolist() == [True] * 4
    assert logprobs.grad.tolist() == [0.0] * 4


@steady
@given(st.floats(0.01, 100), st.floats(-5, 5))
def test_it_is_a_bound_of_the_free_surrogate(ratio, advantage):
    result, gradient = surrogate(ratio, advantage)
    assert result.losses.item() >= -ratio * advantage - 1e-9
    if result.clipped.item():
        assert gradient == 0
    else:
        assert gradient == pytest.approx(-ratio * advantage)


def weights(ratios, cap, mode="truncate", samples=None):
    return importance_weights(torch.tensor(ratios).log(), torch.zeros(len(ratios)), cap, mode,
                              None if samples is None else torch.tensor(samples))


def test_truncated_importance_weights():
    found = weights([1.0, 1.5, 4.0, 0.1], 2.0)
    assert found.weights.tolist() == pytest.approx([1.0, 1.5, 2.0, 0.1])
    assert found.ratio.tolist() == pytest.approx([1.0, 1.5, 4.0, 0.1])
    assert found.beyond.tolist() == [False, False, True, False]


def test_masked_importance_weights():
    found = weights([1.0, 1.5, 4.0, 0.1, 0.6], 2.0, "mask")
    assert found.weights.tolist() == pytest.approx([1.0, 1.5, 0.0, 0.0, 0.6])
    assert found.beyond.tolist() == [False, False, True, True, False]


def test_importance_weights_of_sequences_are_products():
    found = weights([1.5, 4.0, 1.5, 0.5], 2.1, "truncate", [0, 1, 0, 1])
    assert found.ratio.tolist() == pytest.approx([2.25, 2.0, 2.25, 2.0])
    assert found.weights.tolist() == pytest.approx([2.1, 2.0, 2.1, 2.0])
    assert weights([1.5, 4.0, 1.5, 0.5], 2.1, "mask", [0, 1, 0, 1]).weights.tolist() == pytest.approx([0, 2, 0, 2])


def test_importance_weights_are_numbers_and_constants_whatever_comes():
    old = torch.tensor([60.0, 60.0, -60.0], requires_grad=True)
    for mode, expected in ("truncate", [2.0, 2.0, 0.0]), ("mask", [0.0, 0.0, 0.0]):
        found = importance_weights(old, torch.zeros(3), 2.0, mode, torch.tensor([0, 0, 1]))
        assert found.weights.tolist() == pytest.approx(expected, abs=1e-8)
        assert torch.isfinite(found.ratio).all()
        assert not found.weights.requires_grad

"""Token losses, against values worked out by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.losses import clipped_surrogate

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


@steady
@given(st.floats(0.01, 100), st.floats(-5, 5))
def test_it_is_a_bound_of_the_free_surrogate(ratio, advantage):
    result, gradient = surrogate(ratio, advantage)
    assert result.losses.item() >= -ratio * advantage - 1e-9
    if result.clipped.item():
        assert gradient == 0
    else:
        assert gradient == pytest.approx(-ratio * advantage)

"""Value loss, moments of returns, explained variance: by hand, and against plain transcriptions."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.values import LEAST_SPREAD, RunningMoments, clipped_value_loss, explained_variance

steady = settings(deadline=None, derandomize=True)
batches = st.lists(st.lists(st.floats(-100, 100, width=32), max_size=8), min_size=1, max_size=5)


def loss(value, old, target, clip):
    value = torch.tensor([value], dtype=torch.float64, requires_grad=True)
    losses, held = clipped_value_loss(value, torch.tensor([old], dtype=torch.float64),
                                      torch.tensor([target], dtype=torch.float64), clip)
    losses.sum().backward()
    return losses.item(), value.grad.item(), held.item()


@pytest.mark.parametrize(("value", "old", "target", "clip", "expected", "gradient", "held"), [
    (1.0, 1.0, 3.0, 0.2, 2.0, -2.0, False),     # as it was
    (1.1, 1.0, 3.0, 0.2, 1.805, -1.9, False),   # moved within the clip
    (1.5, 1.0, 3.0, 0.2, 1.62, 0.0, True),      # moved too far towards the target: held at 1.2
    (0.5, 1.0, 3.0, 0.2, 3.125, -2.5, False),   # moved away from it: never held
    (2.5, 1.0, 1.0, 0.2, 1.125, 1.5, False),    # past the target by more than the clip
    (1.5, 1.0, 3.0, 0.0, 1.125, -1.5, False),   # no clip
])
def test_value_loss_by_hand(value, old, target, clip, expected, gradient, held):
    found = loss(value, old, target, clip)
    assert found[:2] == pytest.approx((expected, gradient))
    assert found[2] is held


@pytest.mark.parametrize(("values", "expected"), [
    ([1.0, 2.0, 3.0], 1.0),
    ([2.0, 2.0, 2.0], 0.0),
    ([0.0, 1.0, 2.0], 1.0),    # off by a constant: still explained
    ([3.0, 2.0, 1.0], -3.0),
    ([1.5, 2.0, 2.5], 0.75),
])
def test_explained_variance_by_hand(values, expected):
    assert explained_variance(torch.tensor(values), torch.tensor([1.0, 2.0, 3.0])) == pytest.approx(expected)


def test_equal_returns_leave_nothing_to_explain():
    assert explained_variance(torch.tensor([0.0, 5.0]), torch.tensor([0.7, 0.7])) == 0
    assert explained_variance(torch.zeros(0), torch.zeros(0)) == 0


def test_moments_by_hand():
    first = RunningMoments().updated(torch.tensor([1.0, 3.0]))
    assert first == RunningMoments(2, 2, 1)
    # 1, 3, 5, 7: mean 4, variance 5
    assert first.updated(torch.tensor([5.0, 7.0])) == RunningMoments(4, 4, 5)
    # what was before counts half: (1 * 2 + 2 * 6) / 3; each group has a variance of 1, and their means differ by 4
    half = first.updated(torch.tensor([5.0, 7.0]), decay=0.5)
    assert (half.weight, half.mean, half.variance) == pytest.approx((3, 14 / 3, 1 + 16 * 2 / 9))


def test_before_the_first_numbers_values_stay_as_they_are():
    values = torch.tensor([-3.0, 0.5])
    assert RunningMoments().normalize(values).tolist() == values.tolist()
    assert RunningMoments().updated(torch.zeros(0)) == RunningMoments()


@steady
@given(batches)
def test_moments_are_those_of_all_numbers(batches):
    moments = RunningMoments()
    for batch in batches:
        moments = moments.updated(torch.tensor(batch))
    every = torch.tensor([one for batch in batches for one in batch], dtype=torch.float64)
    if len(every):
        assert moments.weight == len(every)
        assert moments.mean == pytest.approx(every.mean().item(), abs=1e-9)
        assert moments.variance == pytest.approx(every.var(correction=0).item(), abs=1e-8)


def test_values_come_back_from_their_units():
    moments = RunningMoments().updated(torch.tensor([10.0, 20.0, 60.0]))
    values = torch.tensor([0.0, 30.0, 51.6])
    assert moments.normalize(torch.tensor([30.0])).item() == 0
    assert moments.denormalize(moments.normalize(values)).tolist() == pytest.approx(values.tolist(), abs=1e-5)


def test_returns_that_hardly_differ_are_not_blown_up():
    moments = RunningMoments().updated(torch.full((5,), 2.0))
    assert moments.spread == LEAST_SPREAD
    assert moments.normalize(torch.tensor([2.0])).item() == 0
    assert math.isfinite(moments.normalize(torch.tensor([3.0])).item())


def test_moments_survive_a_checkpoint():
    moments = RunningMoments().updated(torch.randn(9, generator=torch.Generator().manual_seed(0)))
    assert RunningMoments.of(moments.to_dict()) == moments

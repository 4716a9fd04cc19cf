"""Advantages relative to a group."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.advantages import EPSILON, group_advantages

steady = settings(deadline=None, derandomize=True)

rewards_by_group = st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=6), min_size=1, max_size=5)


def flat(groups):
    rewards = torch.tensor([reward for group in groups for reward in group], dtype=torch.float32)
    return rewards, torch.tensor([number for number, group in enumerate(groups) for _ in group])


def test_by_hand():
    rewards, groups = flat([[0, 1, 1], [2, 4]])
    got = group_advantages(rewards, groups)
    first, second = math.sqrt(1 / 3) + EPSILON, math.sqrt(2) + EPSILON
    assert got.dtype == torch.float32
    assert got.tolist() == pytest.approx([-2 / 3 / first, 1 / 3 / first, 1 / 3 / first, -1 / second, 1 / second])


def test_without_std():
    rewards, groups = flat([[0, 1, 1], [2, 4]])
    got = group_advantages(rewards, groups, normalize_std=False)
    assert got.tolist() == pytest.approx([-2 / 3, 1 / 3, 1 / 3, -1, 1])


@pytest.mark.parametrize("normalize_std", [True, False])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e6, -7.7, 0.0])
@pytest.mark.parametrize("size", [1, 3, 7, 16])
def test_equal_rewards_give_exactly_zero(size, reward, normalize_std):
    rewards, groups = flat([[reward] * size, [0.0, 1.0]])
    got = group_advantages(rewards, groups, normalize_std)
    assert got[:size].tolist() == [0.0] * size
    assert got[size:].abs().min() > 0


def test_groups_need_not_lie_together():
    rewards, groups = torch.tensor([1.0, 5.0, 0.0, 9.0]), torch.tensor([1, 0, 1, 0])
    apart = group_advantages(rewards, groups)
    together = group_advantages(torch.tensor([5.0, 9.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1]))
    assert apart.tolist() == together[[2, 0, 3, 1]].tolist()


def test_no_samples():
    assert group_advantages(torch.empty(0), torch.empty(0, dtype=torch.int64)).tolist() == []


@steady
@given(rewards_by_group)
def test_a_group_sums_to_zero_and_keeps_its_order(by_group):
    rewards, groups = flat(by_group)
    got = group_advantages(rewards, groups)
    assert torch.isfinite(got).all()
    for number, group in enumerate(by_group):
        own = got[groups == number]
        assert abs(float(own.sum())) < 1e-4
        order = sorted(range(len(group)), key=lambda i: group[i])
        assert all(own[a] <= own[b] for a, b in itertools.pairwise(order))


@steady
@given(rewards_by_group, st.permutations(range(5)))
def test_other_groups_do_not_matter(by_group, order):
    alone = [group_advantages(*flat([group])) for group in by_group]
    chosen = [number for number in order if number < len(by_group)]
    got = group_advantages(*flat([by_group[number] for number in chosen]))
    torch.testing.assert_close(got, torch.cat([alone[number] for number in chosen]), rtol=0, atol=0)

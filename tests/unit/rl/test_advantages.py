"""Advantages relative to a group."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.advantages import EPSILON, differing, group_advantages, sample_sums, standardized, sums_to_go

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


def test_leave_one_out_compares_with_the_others():
    rewards, groups = flat([[1, 0, 2], [2, 4], [7]])
    got = group_advantages(rewards, groups, normalize_std=False, leave_one_out=True)
    assert got.tolist() == pytest.approx([1 - (0 + 2) / 2, 0 - (1 + 2) / 2, 2 - (1 + 0) / 2, 2 - 4, 4 - 2, 0])
    scaled = group_advantages(rewards, groups, leave_one_out=True)
    assert scaled[:3].tolist() == pytest.approx([0, -1.5 / (1 + EPSILON), 1.5 / (1 + EPSILON)])


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("normalize_std", [True, False])
@pytest.mark.parametrize("reward", [0.1, 1 / 3, 1e6, -7.7, 0.0])
@pytest.mark.parametrize("size", [1, 3, 7, 16])
def test_equal_rewards_give_exactly_zero(size, reward, normalize_std, leave_one_out):
    rewards, groups = flat([[reward] * size, [0.0, 1.0]])
    got = group_advantages(rewards, groups, normalize_std, leave_one_out)
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


def test_differing_says_it_for_every_sample_of_a_group():
    rewards, groups = flat([[1, 1], [0, 1, 0], [5]])
    assert differing(rewards, groups).tolist() == [False, False, True, True, True, False]
    assert differing(rewards[groups != 1], groups[groups != 1]).tolist() == [False, False, False]
    assert differing(rewards[:0], groups[:0]).tolist() == []


def test_standardized_by_hand():
    got = standardized(torch.tensor([1.0, 0.0, 0.0, 0.0]))
    spread = math.sqrt((0.75**2 + 3 * 0.25**2) / 4) + EPSILON
    assert got.dtype == torch.float32
    assert got.tolist() == pytest.approx([0.75 / spread] + [-0.25 / spread] * 3)


@pytest.mark.parametrize("value", [0.1, 1 / 3, -7.7, 1e6])
@pytest.mark.parametrize("size", [0, 1, 3, 7])
def test_standardized_equal_values_are_exactly_zero(size, value):
    assert standardized(torch.full((size,), value)).tolist() == [0.0] * size


def test_rounding_is_not_blown_up_to_the_size_of_a_reward():
    noise = torch.tensor([1e-8, -1e-8, 0.0], dtype=torch.float64)
    assert standardized(noise).abs().max() < 1e-3


def test_sums_over_samples_by_hand():
    values, lengths = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), torch.tensor([2, 0, 3])
    assert sample_sums(values, lengths).tolist() == [3, 0, 12]
    assert sums_to_go(values, lengths).tolist() == [3, 2, 12, 9, 5]


@steady
@given(st.lists(st.lists(st.floats(-100, 100), max_size=6), min_size=1, max_size=6))
def test_a_sum_to_go_begins_with_the_whole_and_ends_with_the_last(rows):
    values = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    lengths = torch.tensor([len(row) for row in rows])
    found = sums_to_go(values, lengths).split(lengths.tolist())
    for row, sums in zip(rows, found, strict=True):
        assert sums.tolist() == pytest.approx([math.fsum(row[place:]) for place in range(len(row))], abs=1e-9)

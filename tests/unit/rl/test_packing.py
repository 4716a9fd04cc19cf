"""Micro-batches and shares of ranks."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.packing import PADDING_SHARE, micro_batches, partition

steady = settings(deadline=None, derandomize=True)

lengths = st.lists(st.integers(1, 300), max_size=60)


def padded(batch, sizes):
    return max(sizes[i] for i in batch) * len(batch)


def test_by_hand():
    assert micro_batches([3, 9, 4, 9, 3], 32) == [[1, 3], [2, 0, 4]]
    # 3 beside two samples of 4 and 3 would be a second token of padding, more than 20 / 16
    assert micro_batches([3, 9, 4, 9, 3], 20) == [[1, 3], [2, 0], [4]]


def test_a_sample_longer_than_the_budget_is_alone():
    assert micro_batches([50, 8, 50], 16) == [[0], [2], [1]]


def test_no_samples():
    assert micro_batches([], 8) == []
    assert partition([], 3) == [[], [], []]


def test_a_long_tail_is_not_padded_to_its_longest():
    sizes = [64] * 10 + [6] * 118
    batches = micro_batches(sizes, 16384)
    assert len(batches) == 2
    assert sum(padded(batch, sizes) for batch in batches) < 2 * sum(sizes)


@steady
@given(lengths, st.integers(1, 1000))
def test_micro_batches_cover_all_within_the_budget(sizes, budget):
    batches = micro_batches(sizes, budget)
    assert sorted(itertools.chain(*batches)) == list(range(len(sizes)))
    for batch in batches:
        assert padded(batch, sizes) <= budget or len(batch) == 1
        assert padded(batch, sizes) - sum(sizes[i] for i in batch) <= budget / PADDING_SHARE
    assert [sizes[i] for i in itertools.chain(*batches)] == sorted(sizes, reverse=True)


@steady
@given(st.lists(st.integers(5, 5), max_size=40), st.integers(5, 100))
def test_equal_lengths_need_as_few_as_possible(sizes, budget):
    each = budget // 5
    assert len(micro_batches(sizes, budget)) == -(-len(sizes) // each)


@steady
@given(lengths, st.integers(1, 6))
def test_partition_covers_all_and_is_balanced(sizes, ranks):
    shares = partition(sizes, ranks)
    assert len(shares) == ranks
    assert sorted(itertools.chain(*shares)) == list(range(len(sizes)))
    assert all(share == sorted(share) for share in shares)
    loads = [sum(sizes[i] for i in share) for share in shares]
    assert max(loads) - min(loads) <= max(sizes, default=0)


@steady
@given(st.lists(st.integers(1, 30), min_size=1, max_size=7))
def test_partition_is_close_to_the_best(sizes):
    best = min(max(sum(s for s, rank in zip(sizes, assigned) if rank == r) for r in range(2))
               for assigned in itertools.product(range(2), repeat=len(sizes)))
    assert max(sum(sizes[i] for i in share) for share in partition(sizes, 2)) <= 7 / 6 * best


def test_equal_lengths_are_dealt_evenly():
    assert partition([4] * 6, 3) == [[0, 3], [1, 4], [2, 5]]


@steady
@given(st.lists(lengths, max_size=5), st.integers(1, 4))
def test_parts_that_come_one_after_the_other_are_balanced_together(parts, ranks):
    loads = [0] * ranks
    for sizes in parts:
        for rank, share in enumerate(partition(sizes, ranks, loads)):
            loads[rank] += sum(sizes[i] for i in share)
    assert max(loads) - min(loads) <= max((size for sizes in parts for size in sizes), default=0)

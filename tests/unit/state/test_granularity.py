"""How many items a role takes at once: within bounds, as few as their cost allows."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.state.granularity import OVERHEAD, Bounds, ChunkDone, Granularity, Take, affine_cost, smallest

steady = settings(deadline=None, derandomize=True, max_examples=60)

bounds = st.tuples(st.integers(1, 50), st.integers(0, 200)).map(lambda pair: Bounds(pair[0], pair[0] + pair[1]))
chunks = st.builds(ChunkDone, st.integers(1, 250), st.floats(0, 1e4), st.floats(0, 1e4), st.integers(0, 1000))
costs = st.floats(1e-6, 10)


def run(machine, fixed, each, steps=16):
    """What it takes when chunks cost `fixed + each * items`, and their sizes are what it asked for."""
    asked = [machine.take]
    for _ in range(steps):
        items = asked[-1].at_least
        asked.append(machine.handle(ChunkDone(items, fixed + each * items)))
    return asked


@steady
@given(bounds, st.integers(1, 4), st.lists(st.one_of(chunks, bounds), max_size=40))
def test_bounds_are_kept_whatever_happens(first, sharers, events):
    machine, current = Granularity(first.low, first.high, sharers), first
    for event in events:
        before = machine.take.at_least
        current = event if isinstance(event, Bounds) else current
        take = machine.handle(event)
        assert current.low <= take.at_least <= take.at_most <= current.high
        assert machine.take == take
        if isinstance(event, ChunkDone):
            assert math.ceil(before / 2) <= take.at_least <= 2 * before


@steady
@given(bounds, st.lists(st.one_of(chunks, bounds), max_size=40))
def test_the_same_events_give_the_same_instructions(first, events):
    one, other = (Granularity(first.low, first.high) for _ in range(2))
    assert [one.handle(event) for event in events] == [other.handle(event) for event in events]


@steady
@given(bounds, costs, costs)
def test_it_settles_on_the_smallest_chunk_that_is_worth_it(given_bounds, fixed, each):
    found = run(Granularity(given_bounds.low, given_bounds.high), fixed, each)
    assert found[-1].at_least == found[-2].at_least
    size, (low, high) = found[-1].at_least, (given_bounds.low, given_bounds.high)
    share, before = fixed / (fixed + each * size), fixed / (fixed + each * (size - 1)) if size > 1 else 1.0
    assert share <= OVERHEAD * (1 + 1e-5) or size == high
    assert before >= OVERHEAD * (1 - 1e-5) or size == low


@steady
@given(st.lists(costs, min_size=2, max_size=2), costs, st.integers(1, 500))
def test_more_overhead_means_larger_chunks(fixed, each, most):
    less, more = sorted(fixed)
    assert smallest(less, each, 0.0, most) <= smallest(more, each, 0.0, most)
    assert run(Granularity(1, most), less, each)[-1].at_least <= run(Granularity(1, most), more, each)[-1].at_least


@pytest.mark.parametrize(("fixed", "each", "size"), [
    (0.0, 1.0, 1), (0.0, 0.0, 1), (1.0, 1.0, 9), (0.1, 1.0, 1), (0.3, 0.9, 3), (5.0, 0.0, 64), (100.0, 1.0, 64)])
def test_sizes_by_hand(fixed, each, size):
    assert smallest(fixed, each, 0.0, 64) == size


@pytest.mark.parametrize(("fixed", "each", "interval", "size"), [
    (1.0, 0.1, 10.0, 1), (1.0, 1.0, 2.0, 2), (1.0, 1.0, 1.2, 9), (1.0, 1.0, 0.5, 9), (5.0, 0.0, 1.0, 6)])
def test_who_keeps_up_with_what_comes_need_not_wait_for_more(fixed, each, interval, size):
    assert smallest(fixed, each, interval, 64) == size


def serve(machine, fixed, each, interval, chunks=30):
    """What a consumer asks for last, and the items that wait then, when one comes every `interval` seconds."""
    now, taken, high = 0.0, 0, machine.take.at_most
    for _ in range(chunks):
        begin = max(now, (taken + machine.take.at_least) * interval)
        items = min(high, int(begin / interval + 1e-9) - taken)
        seconds = fixed + each * items
        machine.handle(ChunkDone(items, seconds, begin - now))
        now, taken = begin + seconds, taken + items
    return machine.take.at_least, now / interval - taken


@pytest.mark.parametrize(("fixed", "each", "interval", "at_least"), [
    (1.0, 0.1, 4.0, 1), (1.0, 1.0, 4.0, 1), (1.0, 0.1, 0.5, 3), (1.0, 0.1, 0.2, 13), (0.001, 0.0001, 0.05, 1)])
def test_it_is_as_quick_as_the_pace_of_what_comes_allows(fixed, each, interval, at_least):
    found, backlog = serve(Granularity(1, 64), fixed, each, interval)
    assert found <= at_least
    # what came while the last chunk was being worked on, and no more
    assert backlog <= (fixed + each * 64) / interval + 1


def test_a_line_is_found_exactly_and_slow_chunks_do_not_move_it():
    done = [(items, 3.0 + 2.0 * items) for items in (4, 8, 6, 5, 7, 4, 6)]
    assert affine_cost(done) == pytest.approx((3.0, 2.0))
    assert affine_cost([*done, (5, 400.0)]) == pytest.approx((3.0, 2.0))
    assert affine_cost([(4, 1.0), (4, 2.0)]) is None
    assert affine_cost([]) is None


def test_no_cost_is_below_zero():
    assert affine_cost([(1, 5.0), (2, 1.0)]) == (3.0, 0.0)
    assert affine_cost([(10, 1.0), (20, 10.0)]) == (0.0, 0.9)


def test_chunks_of_one_size_say_nothing_so_another_is_tried():
    machine = Granularity(4, 64)
    sizes = [machine.handle(ChunkDone(4, 1.0)).at_least for _ in range(3)]
    assert sizes == [4, 4, 8]


def test_the_only_consumer_takes_all_there_is():
    machine = Granularity(2, 16)
    assert machine.take == Take(16, 2)
    assert machine.handle(ChunkDone(2, 1.0)) == Take(16, 2)


def test_several_consumers_leave_work_for_each_other():
    machine = Granularity(1, 16, sharers=2)
    taken = [machine.handle(ChunkDone(1, 1.0, 0.0, waiting)).at_most for waiting in (0, 20, 1000, 3)]
    # the share of four, which is half of one's part, and never less than what is worth a chunk
    assert taken == [1, 5, 16, 2]


def test_new_bounds_hold_at_once():
    machine = Granularity(1, 100)
    assert machine.handle(Bounds(30, 40)) == Take(40, 30)
    assert machine.handle(Bounds(2, 8)) == Take(8, 8)

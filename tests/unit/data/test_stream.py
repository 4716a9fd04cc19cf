from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.data.order import shuffled
from rlinf_cli.data.rows import Row
from rlinf_cli.data.sources import Source
from rlinf_cli.data.stream import PromptStream


class Numbered:
    def __init__(self, size: int | None) -> None:
        self.size = size

    def row(self, index: int) -> Row:
        return Row(text=str(index))


def numbered(size: int | None, weight: float = 1.0, name: str = "numbers") -> Source:
    return Source(name, Numbered(size), weight)


SIZES, STEPS, SEEDS = st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**40)


def ids(stream: PromptStream, steps: range) -> list[str]:
    return [item.id for step in steps for item in stream.batch(step)]


@settings(deadline=None)
@given(size=SIZES, per_batch=STEPS, seed=SEEDS, shuffle=st.booleans())
def test_each_epoch_holds_each_row_once(size: int, per_batch: int, seed: int, shuffle: bool) -> None:
    stream = PromptStream([numbered(size)], per_batch, seed, shuffle)
    places = [place for step in range(3 * size // per_batch + 2) for place in stream.places(step)]
    assert [place.epoch for place in places] == [number // size for number in range(len(places))]
    for epoch in range(3):
        assert sorted(place.index for place in places if place.epoch == epoch) == list(range(size))


@settings(deadline=None)
@given(size=SIZES, per_batch=STEPS, seed=SEEDS, shuffle=st.booleans(), data=st.data())
def test_a_resume_at_any_step_goes_on_as_if_never_stopped(
    size: int, per_batch: int, seed: int, shuffle: bool, data: st.DataObject
) -> None:
    steps = 4 * size // per_batch + 3
    whole = [ids(PromptStream([numbered(size)], per_batch, seed, shuffle), range(step, step + 1)) for step in range(steps)]
    stopped = data.draw(st.integers(0, steps - 1))
    resumed = PromptStream([numbered(size)], per_batch, seed, shuffle)
    assert ids(resumed, range(stopped, steps)) == list(itertools.chain(*whole[stopped:]))
    asked_backwards = [ids(resumed, range(step, step + 1)) for step in reversed(range(steps))]
    assert asked_backwards[::-1] == whole


def test_two_epochs_of_five_steps() -> None:
    """Killed at every step k of 2 epochs x 5 steps: the same ids (R1)."""
    whole = ids(PromptStream([numbered(20)], 4, 7, True), range(10))
    for k in range(11):
        before, after = PromptStream([numbered(20)], 4, 7, True), PromptStream([numbered(20)], 4, 7, True)
        assert ids(before, range(k)) + ids(after, range(k, 10)) == whole
    assert len(set(whole)) == 40


@settings(deadline=None)
@given(size=SIZES, per_batch=STEPS, seed=SEEDS, shuffle=st.booleans())
def test_a_row_repeats_within_a_step_only_when_it_must(size: int, per_batch: int, seed: int, shuffle: bool) -> None:
    stream = PromptStream([numbered(size)], per_batch, seed, shuffle)
    for step in range(2 * size):
        items = stream.batch(step)
        assert len({item.id for item in items}) == per_batch
        if size >= per_batch:
            assert len({item.row.text for item in items}) == per_batch


def test_ids_name_epoch_and_row() -> None:
    stream = PromptStream([numbered(3)], 2, 0, shuffle=False)
    assert ids(stream, range(4)) == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2", "2-0", "2-1"]
    assert [item.row.text for item in stream.batch(1)] == ["2", "0"]


def test_fewer_rows_than_a_step_takes() -> None:
    assert ids(PromptStream([numbered(2)], 5, 0, shuffle=False), range(1)) == ["0-0", "0-1", "1-0", "1-1", "2-0"]
    texts = Counter(item.row.text for item in PromptStream([numbered(3)], 9, 4, shuffle=True).batch(5))
    assert set(texts.values()) == {3}


def test_a_generator_never_repeats() -> None:
    stream = PromptStream([numbered(None)], 4, 3, shuffle=True)
    assert ids(stream, range(2)) == [f"0-{i}" for i in range(8)]
    assert stream.batch(1000)[3].row.text == "4003"
    assert stream.epoch(1000) == 0


@pytest.mark.parametrize(("step", "epoch"), [(0, 0.0), (1, 0.4), (5, 2.0)])
def test_epoch_counts_passes(step: int, epoch: float) -> None:
    assert PromptStream([numbered(10)], 4, 0, True).epoch(step) == pytest.approx(epoch)


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(shuffled(30, str(seed), epoch)) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100
    first, second = (ids(PromptStream([numbered(30)], 30, seed, True), range(1)) for seed in (0, 1))
    assert first != second


def test_the_order_is_the_same_everywhere() -> None:
    """Written down once: another Python, platform or library version must give the same."""
    assert shuffled(10, "0", 0) == [1, 2, 5, 8, 7, 3, 4, 6, 0, 9]
    assert ids(PromptStream([numbered(5)], 4, 1, True), range(3)) == [
        "0-1", "0-2", "0-4", "0-0", "0-3", "1-2", "1-0", "1-1", "1-4", "1-3", "2-0", "2-2"]


def test_orders_are_uniform() -> None:
    """Each of the 24 orders of four rows comes about as often as the others."""
    counts = Counter(tuple(shuffled(4, str(seed), epoch)) for seed in range(60) for epoch in range(40))
    assert len(counts) == 24
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 49.7  # chi-square, 23 degrees, p = 0.001


@pytest.mark.parametrize(("size", "per_batch"), [(1000, 8), (63, 64), (3, 64)])
def test_late_steps_cost_no_more_than_early_ones(size: int, per_batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[int] = []

    def counted(size: int, seed: str, epoch: int) -> list[int]:
        orders.append(epoch)
        return shuffled(size, seed, epoch)

    monkeypatch.setattr("rlinf_cli.data.order.shuffled", counted)
    PromptStream([numbered(size)], per_batch, 0, True).batch(10**9 + 7)
    assert len(orders) <= 2 * per_batch


def mixture(sizes: list[int | None], weights: list[float], per_batch: int, shuffle: bool = True) -> PromptStream:
    sources = [numbered(size, weight, f"s{i}") for i, (size, weight) in enumerate(zip(sizes, weights))]
    return PromptStream(sources, per_batch, 5, shuffle)


MIXED = st.lists(st.tuples(st.one_of(st.none(), st.integers(1, 12)), st.sampled_from([0.5, 1.0, 2.0, 3.0])), min_size=2,
                 max_size=4)


@settings(deadline=None, max_examples=50)
@given(mixed=MIXED, per_batch=st.integers(1, 12), shuffle=st.booleans())
def test_each_source_of_a_mixture_has_epochs_of_its_own(mixed: list[tuple[int | None, float]], per_batch: int,
                                                        shuffle: bool) -> None:
    sizes, weights = [size for size, _ in mixed], [weight for _, weight in mixed]
    stream = mixture(sizes, weights, per_batch, shuffle)
    places = [place for number in range(120 // per_batch + 1) for place in stream.places(number)]
    for source, size in enumerate(sizes):
        own = [(place.epoch, place.index) for place in places if place.source == source]
        if size is None:
            assert own == [(0, number) for number in range(len(own))]
            continue
        for epoch in range(len(own) // size):
            rows = [index for number, index in own if number == epoch]
            assert sorted(rows) == list(range(size))
            assert shuffle or rows == sorted(rows)
        assert [epoch for epoch, _ in own] == [number // size for number in range(len(own))]


@settings(deadline=None, max_examples=50)
@given(mixed=MIXED, per_batch=st.integers(1, 12), data=st.data())
def test_a_mixture_goes_on_where_it_stopped(mixed: list[tuple[int | None, float]], per_batch: int,
                                            data: st.DataObject) -> None:
    sizes, weights = [size for size, _ in mixed], [weight for _, weight in mixed]
    whole = ids(mixture(sizes, weights, per_batch), range(20))
    stopped = data.draw(st.integers(0, 19))
    assert ids(mixture(sizes, weights, per_batch), range(stopped, 20)) == whole[stopped * per_batch :]
    assert len(set(whole)) == len(whole)


@settings(deadline=None, max_examples=50)
@given(sizes=st.lists(st.integers(6, 20), min_size=2, max_size=3), per_batch=st.integers(1, 6))
def test_no_row_of_a_mixture_comes_twice_in_a_batch(sizes: list[int], per_batch: int) -> None:
    stream = mixture(list(sizes), [1.0] * len(sizes), per_batch)
    for number in range(40):
        rows = [(place.source, place.index) for place in stream.places(number)]
        assert len(set(rows)) == per_batch


def test_ids_of_a_mixture_name_the_source() -> None:
    stream = mixture([2, None], [2.0, 1.0], 3, shuffle=False)
    assert ids(stream, range(3)) == ["0.0-0", "1.0-0", "0.0-1", "0.1-0", "1.0-1", "0.1-1", "0.2-0", "1.0-2", "0.2-1"]
    assert [item.row.text for item in stream.batch(1)] == ["0", "1", "1"]


def test_rows_of_a_mixture_are_shuffled_apart() -> None:
    stream = mixture([30, 30], [1.0, 1.0], 60)
    orders = [[place.index for place in stream.places(0) if place.source == source] for source in (0, 1)]
    assert orders[0] != orders[1]


def test_the_epoch_of_a_mixture_is_that_of_its_largest_source() -> None:
    stream = mixture([10, 40, None], [1.0, 2.0, 1.0], 8)
    assert stream.epoch(0) == 0
    assert stream.epoch(10) == pytest.approx(1.0)
    assert mixture([None, None], [1.0, 2.0], 8).epoch(10) == 0


def test_left_out_rows_never_come_and_ids_name_the_row_of_the_file() -> None:
    stream = PromptStream([Source("numbers", Numbered(6), kept=[1, 4, 5])], 3, 0, shuffle=True)
    assert sorted(ids(stream, range(2))) == ["0-1", "0-4", "0-5", "1-1", "1-4", "1-5"]
    assert {item.row.text for item in stream.batch(7)} == {"1", "4", "5"}
    assert stream.epoch(2) == 2.0


def test_nothing_is_asked_of_a_source_before_the_first_batch() -> None:
    class Unopened:
        @property
        def size(self) -> int:
            raise AssertionError("looked up")

    PromptStream([Source("org/name", Unopened())], 4, 0, True)

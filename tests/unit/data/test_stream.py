from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.data.rows import Row
from rlinf_cli.data.stream import PromptStream, shuffled


class Numbered:
    def __init__(self, size: int | None) -> None:
        self.size = size

    def row(self, index: int) -> Row:
        return Row(text=str(index))


SIZES, STEPS, SEEDS = st.integers(1, 40), st.integers(1, 50), st.integers(0, 2**40)


def ids(stream: PromptStream, steps: range) -> list[str]:
    return [item.id for step in steps for item in stream.batch(step)]


@given(size=SIZES, per_step=STEPS, seed=SEEDS, shuffle=st.booleans())
def test_each_epoch_holds_each_row_once(size: int, per_step: int, seed: int, shuffle: bool) -> None:
    stream = PromptStream(Numbered(size), per_step, seed, shuffle)
    places = [place for step in range(3 * size // per_step + 2) for place in stream.places(step)]
    assert [epoch for epoch, _ in places] == [place // size for place in range(len(places))]
    for epoch in range(3):
        assert sorted(row for number, row in places if number == epoch) == list(range(size))


@given(size=SIZES, per_step=STEPS, seed=SEEDS, shuffle=st.booleans(), data=st.data())
def test_a_resume_at_any_step_goes_on_as_if_never_stopped(
    size: int, per_step: int, seed: int, shuffle: bool, data: st.DataObject
) -> None:
    steps = 4 * size // per_step + 3
    whole = [ids(PromptStream(Numbered(size), per_step, seed, shuffle), range(step, step + 1)) for step in range(steps)]
    stopped = data.draw(st.integers(0, steps - 1))
    resumed = PromptStream(Numbered(size), per_step, seed, shuffle)
    assert ids(resumed, range(stopped, steps)) == list(itertools.chain(*whole[stopped:]))
    asked_backwards = [ids(resumed, range(step, step + 1)) for step in reversed(range(steps))]
    assert asked_backwards[::-1] == whole


def test_two_epochs_of_five_steps() -> None:
    """Killed at every step k of 2 epochs x 5 steps: the same ids (R1)."""
    whole = ids(PromptStream(Numbered(20), 4, 7, True), range(10))
    for k in range(11):
        before, after = PromptStream(Numbered(20), 4, 7, True), PromptStream(Numbered(20), 4, 7, True)
        assert ids(before, range(k)) + ids(after, range(k, 10)) == whole
    assert len(set(whole)) == 40


@settings(deadline=None)
@given(size=SIZES, per_step=STEPS, seed=SEEDS, shuffle=st.booleans())
def test_a_row_repeats_within_a_step_only_when_it_must(size: int, per_step: int, seed: int, shuffle: bool) -> None:
    stream = PromptStream(Numbered(size), per_step, seed, shuffle)
    for step in range(2 * size):
        items = stream.batch(step)
        assert len({item.id for item in items}) == per_step
        if size >= per_step:
            assert len({item.row.text for item in items}) == per_step


def test_ids_name_epoch_and_row() -> None:
    stream = PromptStream(Numbered(3), 2, 0, shuffle=False)
    assert ids(stream, range(4)) == ["0-0", "0-1", "0-2", "1-0", "1-1", "1-2", "2-0", "2-1"]
    assert [item.row.text for item in stream.batch(1)] == ["2", "0"]


def test_fewer_rows_than_a_step_takes() -> None:
    assert ids(PromptStream(Numbered(2), 5, 0, shuffle=False), range(1)) == ["0-0", "0-1", "1-0", "1-1", "2-0"]
    texts = Counter(item.row.text for item in PromptStream(Numbered(3), 9, 4, shuffle=True).batch(5))
    assert set(texts.values()) == {3}


def test_a_generator_never_repeats() -> None:
    stream = PromptStream(Numbered(None), 4, 3, shuffle=True)
    assert ids(stream, range(2)) == [f"0-{i}" for i in range(8)]
    assert stream.batch(1000)[3].row.text == "4003"
    assert stream.epoch(1000) == 0


@pytest.mark.parametrize(("step", "epoch"), [(0, 0.0), (1, 0.4), (5, 2.0)])
def test_epoch_counts_passes(step: int, epoch: float) -> None:
    assert PromptStream(Numbered(10), 4, 0, True).epoch(step) == pytest.approx(epoch)


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(shuffled(30, seed, epoch)) for seed in range(10) for epoch in range(10)}
    assert len(orders) == 100
    first, second = (ids(PromptStream(Numbered(30), 30, seed, True), range(1)) for seed in (0, 1))
    assert first != second


def test_the_order_is_the_same_everywhere() -> None:
    """Written down once: another Python, platform or library version must give the same."""
    assert shuffled(10, 0, 0) == [1, 2, 5, 8, 7, 3, 4, 6, 0, 9]
    assert ids(PromptStream(Numbered(5), 4, 1, True), range(3)) == [
        "0-1", "0-2", "0-4", "0-0", "0-3", "1-2", "1-0", "1-1", "1-4", "1-3", "2-0", "2-2"]


def test_orders_are_uniform() -> None:
    """Each of the 24 orders of four rows comes about as often as the others."""
    counts = Counter(tuple(shuffled(4, seed, epoch)) for seed in range(60) for epoch in range(40))
    assert len(counts) == 24
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 49.7  # chi-square, 23 degrees, p = 0.001


@pytest.mark.parametrize(("size", "per_step"), [(1000, 8), (63, 64), (3, 64)])
def test_late_steps_cost_no_more_than_early_ones(size: int, per_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[int] = []

    def counted(size: int, seed: int, epoch: int) -> list[int]:
        orders.append(epoch)
        return shuffled(size, seed, epoch)

    monkeypatch.setattr("rlinf_cli.data.stream.shuffled", counted)
    PromptStream(Numbered(size), per_step, 0, True).batch(10**9 + 7)
    assert len(orders) <= 2 * per_step

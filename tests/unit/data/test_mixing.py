from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.data.mixing import Mixture

WEIGHTS = st.lists(st.one_of(st.integers(1, 30).map(float), st.sampled_from([0.1, 0.25, 0.5, 0.333, 1.5, 7.7])), min_size=1,
                   max_size=6)


def shares(weights: list[float]) -> list[Fraction]:
    exact = [Fraction(str(weight)) for weight in weights]
    return [weight / sum(exact) for weight in exact]


@settings(deadline=None, max_examples=40)
@given(weights=WEIGHTS)
def test_every_prefix_has_its_shares_to_within_one_row(weights: list[float]) -> None:
    mixture, share = Mixture(weights), shares(weights)
    taken = [0] * len(weights)
    slack = 1 - Fraction(1, max(2, 2 * len(weights) - 2)) if len(weights) > 1 else Fraction(0)
    for place in range(200):
        taken[mixture.pick(place)[0]] += 1
        assert all(abs(count - (place + 1) * part) <= slack for count, part in zip(taken, share))


@settings(deadline=None, max_examples=40)
@given(weights=WEIGHTS)
def test_a_source_gives_its_places_in_order_and_leaves_none_out(weights: list[float]) -> None:
    mixture = Mixture(weights)
    own: list[list[int]] = [[] for _ in weights]
    for place in range(150):
        source, number = mixture.pick(place)
        assert mixture.before(source, place) == number
        assert mixture.place(source, number) == place
        own[source].append(number)
    assert all(numbers == list(range(len(numbers))) for numbers in own)


@settings(deadline=None, max_examples=40)
@given(weights=WEIGHTS, start=st.integers(0, 10**12))
def test_a_place_far_away_is_found_without_those_before(weights: list[float], start: int) -> None:
    mixture, again = Mixture(weights), Mixture(weights)
    picks = [mixture.pick(place) for place in range(start, start + 20)]
    assert [again.pick(place) for place in range(start + 19, start - 1, -1)] == picks[::-1]
    for source, number in picks:
        share = shares(weights)[source]
        assert abs(number - start * share) < 21


@settings(deadline=None, max_examples=40)
@given(weights=st.lists(st.integers(1, 9).map(float), min_size=2, max_size=3), per_batch=st.integers(1, 24))
def test_every_batch_has_nearly_its_shares(weights: list[float], per_batch: int) -> None:
    mixture = Mixture(weights)
    for number in range(12):
        counts = Counter(mixture.pick(place)[0] for place in range(number * per_batch, (number + 1) * per_batch))
        for source, part in enumerate(shares(weights)):
            assert abs(counts[source] - per_batch * part) < 2


def test_written_down() -> None:
    """A resume depends on it: another version must give the same."""
    assert [Mixture([2.0, 1.0]).pick(place) for place in range(6)] == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)]
    assert [Mixture([1.0, 0.5, 0.5]).pick(place)[0] for place in range(8)] == [0, 1, 2, 0, 0, 1, 2, 0]
    assert [Mixture([3.0]).pick(place) for place in range(3)] == [(0, 0), (0, 1), (0, 2)]


def test_the_period_is_that_of_the_decimals() -> None:
    assert Mixture([0.1, 0.2]).period == 3
    assert Mixture([1, 0.5]).counts == [2, 1]
    assert Mixture([1, 0.333]).period == 1333

"""mean@k, pass@k and their intervals, against enumeration, published values and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.rl.success import independent_trials, mean_at, mean_interval, pass_at, pass_interval, wilson


@st.composite
def evaluations(draw):
    """k, and the successes of each prompt."""
    k = draw(st.integers(1, 7))
    return k, draw(st.lists(st.integers(0, k), min_size=1, max_size=6))


@given(evaluations(), st.data())
def test_pass_is_the_share_of_choices_of_j_responses_with_a_success(evaluation, data):
    k, successes = evaluation
    j = data.draw(st.integers(1, k))
    shares = []
    for count in successes:
        chosen = list(itertools.combinations([True] * count + [False] * (k - count), j))
        shares.append(sum(map(any, chosen)) / len(chosen))
    assert pass_at(j, k, successes) == pytest.approx(sum(shares) / len(shares), abs=1e-12)


@given(evaluations())
def test_pass_at_one_is_the_mean_and_more_tries_never_hurt(evaluation):
    k, successes = evaluation
    passes = [pass_at(j, k, successes) for j in range(1, k + 1)]
    assert passes[0] == pytest.approx(mean_at(k, successes), abs=1e-12)
    assert all(a <= b + 1e-12 for a, b in itertools.pairwise(passes))
    assert passes[-1] == pytest.approx(sum(count > 0 for count in successes) / len(successes), abs=1e-12)


def test_the_mean_counts_responses():
    assert mean_at(4, [4, 0, 1]) == 5 / 12


def test_pass_is_unbiased():
    rate, k, j = 0.3, 5, 2
    expected = sum(math.comb(k, c) * rate**c * (1 - rate) ** (k - c) * pass_at(j, k, [c]) for c in range(k + 1))
    assert expected == pytest.approx(1 - (1 - rate) ** j)


@pytest.mark.parametrize(("successes", "trials", "low", "high"), [
    (81, 263, 0.2553, 0.3662),  # Newcombe (1998), Statistics in Medicine 17: 857-872, table I, method 3
    (15, 148, 0.0624, 0.1605),
    (0, 20, 0.0, 0.1611),
    (1, 29, 0.0061, 0.1718),
    (29, 29, 0.8830, 1.0),
])
def test_wilson_interval_has_the_published_values(successes, trials, low, high):
    assert wilson(successes / trials, trials) == pytest.approx((low, high), abs=5e-5)


@given(st.floats(0, 1), st.floats(1, 1e6))
def test_wilson_interval_holds_the_rate_and_stays_within_bounds(rate, trials):
    low, high = wilson(rate, trials)
    assert 0 <= low <= rate + 1e-12
    assert rate - 1e-12 <= high <= 1


@given(evaluations())
def test_responses_are_worth_between_one_trial_a_prompt_and_one_each(evaluation):
    k, successes = evaluation
    assert len(successes) <= independent_trials(k, successes) <= k * len(successes)


def test_responses_that_agree_within_a_prompt_are_worth_one_trial():
    assert independent_trials(8, [8, 0] * 20) == 40
    assert mean_interval(8, [8, 0] * 20) == wilson(0.5, 40)


def test_responses_that_differ_as_by_chance_are_worth_one_trial_each():
    chance = np.random.default_rng(0).binomial(8, 0.5, 4000).tolist()
    assert independent_trials(8, chance) > 0.95 * 8 * 4000


@pytest.mark.parametrize("successes", [[0, 0, 0], [4, 4, 4]])
def test_where_all_agree_the_prompts_are_what_is_known(successes):
    assert independent_trials(4, successes) == 3


def test_with_one_response_a_prompt_it_is_the_plain_interval():
    assert mean_interval(1, [1, 1, 0, 0, 1]) == wilson(3 / 5, 5)


def test_the_interval_of_pass_counts_prompts():
    assert pass_interval(4, [4, 1, 0, 0]) == wilson(0.5, 4)


def coverage(interval, k, prompts, a, b, runs=1500):
    """How often the interval holds the true mean, where the prompts' rates are drawn from Beta(a, b)."""
    noise = np.random.default_rng(1)
    counts = noise.binomial(k, noise.beta(a, b, (runs, prompts)))
    limits = [interval(k, row) for row in counts.tolist()]
    return np.mean([low <= a / (a + b) <= high for low, high in limits])


@pytest.mark.parametrize(("k", "prompts", "a", "b"), [
    (1, 60, 2, 3), (4, 60, 0.4, 0.6), (16, 60, 0.4, 0.6), (16, 60, 20, 30), (8, 25, 0.2, 0.8), (8, 200, 0.1, 1.9)])
def test_the_interval_holds_the_truth_as_often_as_it_says(k, prompts, a, b):
    assert 0.925 <= coverage(mean_interval, k, prompts, a, b) <= 0.985


def test_taking_all_responses_for_independent_would_be_wrong():
    naive = coverage(lambda k, counts: wilson(mean_at(k, counts), k * len(counts)), 16, 60, 0.4, 0.6)
    assert naive < 0.6

"""Advantages of environments' episodes, and keys that make no sense there."""

from types import SimpleNamespace

import pytest
import torch

from rlinf_cli.api import SegmentReturns
from rlinf_grpo.config import GRPOConfig
from rlinf_grpo.episodes import episode_advantages


def step(episodes, returns, groups, unknown=()):
    """`episodes`: rows of the numbers of the episodes, -1 where one goes on."""
    numbers = torch.tensor(episodes)
    nothing, no = torch.zeros(numbers.shape), torch.zeros(numbers.shape, dtype=torch.bool)
    known = torch.ones_like(no)
    for t, e in unknown:
        known[t, e] = False
    earned = torch.tensor(returns, dtype=torch.float64)
    return SegmentReturns(nothing, nothing, nothing[0], nothing, no, no, known, numbers, earned, torch.tensor(groups))


TWO_GROUPS = [[0, 1, 2, 3], [0, 1, 2, -1], [4, 1, 2, -1]]


def advantages(returns, **keys):
    found = episode_advantages(returns, GRPOConfig(**keys))
    return found.advantages.tolist(), found.trained.tolist()


def test_by_hand():
    # groups {0, 1} with returns 1 and 3, {2, 3} with 5 and 5, {4} alone
    found, trained = advantages(step(TWO_GROUPS, [1, 3, 5, 5, 9], [0, 0, 1, 1, 2]), normalize="none")
    assert found == [[-1, 1, 0, 0], [-1, 1, 0, 0], [0, 1, 0, 0]]
    assert trained == [[True] * 4, [True, True, True, False], [True, True, True, False]]


def test_by_hand_with_the_others_as_baseline():
    found, _ = advantages(step([[0, 1, 2]], [1, 3, 8], [0, 0, 0]), normalize="none", baseline="leave-one-out")
    assert found == [[-4.5, -1.5, 6.0]]


def test_equal_returns_are_exactly_nothing():
    for normalize in "group", "none", "batch":
        found, trained = advantages(step([[0, 1, 2]], [0.1 + 0.2] * 3, [0, 0, 0]), normalize=normalize)
        assert found == [[0, 0, 0]]
        assert all(trained[0])


def test_groups_that_teach_nothing_can_be_dropped():
    _, trained = advantages(step(TWO_GROUPS, [1, 3, 5, 5, 9], [0, 0, 1, 1, 2]), zero_variance="drop")
    assert trained == [[True, True, False, False], [True, True, False, False], [False, True, False, False]]


def test_what_is_unknown_counts_in_no_baseline():
    whole = step([[0, 1, 2], [0, 1, 2]], [1, 3, 100], [0, 0, 0], unknown=[(1, 2)])
    found, trained = advantages(whole, normalize="none")
    assert found == [[-1, 1, 0], [-1, 1, 0]]
    assert trained == [[True, True, False]] * 2
    lost = step([[0, 1, 2]], [1, 3, float("nan")], [0, 0, 0])
    assert advantages(lost, normalize="none") == ([[-1, 1, 0]], [[True, True, False]])


def test_over_all_steps():
    found = episode_advantages(step([[0, 1], [0, -1], [0, -1]], [0, 4], [0, 0]), GRPOConfig(normalize="batch", baseline="none"))
    rows = found.advantages[found.trained]
    assert rows.mean().item() == pytest.approx(0, abs=1e-6)
    assert rows.std(correction=0).item() == pytest.approx(1, abs=1e-3)


def problems(group=8, **keys):
    config = SimpleNamespace(workflow="embodied", env=SimpleNamespace(group=group), algorithm=SimpleNamespace(name="grpo"))
    return list(GRPOConfig(**keys).problems_with(config))


def test_keys_that_make_no_sense_in_an_environment():
    assert problems() == problems(1, baseline="none", normalize="batch") == []
    assert problems(1)[0].startswith("env.group is 1, but algorithm.baseline=group compares the episodes from one initial state")
    (problem,) = problems(kl_coef=0.1)
    assert problem.startswith("algorithm.kl_coef is 0.1, but it is for language models")
    assert [problem.split()[-1] for problem in problems(overlong_filter=True, rounds=2)] == [
        "algorithm.rounds=1", "algorithm.overlong_filter=false"]

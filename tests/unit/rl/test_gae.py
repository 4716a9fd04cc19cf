"""Advantages and returns, by hand and against a literal transcription of the sums."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.rl.gae import segment_gae, token_gae

steady = settings(deadline=None, derandomize=True)
numbers = st.floats(-10, 10, width=32)


def literal(rewards, values, afters, goes_on, gamma, lam):
    """A_t = sum over l of (gamma lambda)^l delta_t+l, as far as the episode goes; one list each."""
    deltas = [reward + gamma * after - value for reward, value, after in zip(rewards, values, afters)]
    advantages = []
    for t in range(len(deltas)):
        total, factor = 0.0, 1.0
        for delta, more in zip(deltas[t:], goes_on[t:]):
            total += factor * delta
            factor *= gamma * lam
            if not more:
                break
        advantages.append(total)
    return advantages


def test_tokens_by_hand():
    # one sample of three tokens, one of a single token; gamma 0.5, lambda 0.5
    advantages, returns = token_gae(torch.tensor([0.0, 1.0, 2.0, 5.0]), torch.tensor([1.0, 2.0, 4.0, 3.0]),
                                    torch.tensor([3, 1]), 0.5, 0.5)
    # deltas 0 + 1 - 1 = 0, 1 + 2 - 2 = 1, 2 + 0 - 4 = -2; and 5 - 3 = 2
    assert advantages.tolist() == [0 + 0.25 * 0.5, 1 - 0.25 * 2, -2, 2]
    assert returns.tolist() == [1.125, 2.5, 2.0, 5.0]


@pytest.mark.parametrize(("lam", "advantages"), [
    (0.0, [0.5, 1.0, 2.0]),   # one step: r + V' - V
    (1.0, [3.5, 3.0, 2.0]),   # the return less the value
])
def test_the_extremes_of_lambda(lam, advantages):
    found, returns = token_gae(torch.tensor([0.0, 1.0, 4.0]), torch.tensor([1.5, 2.0, 2.0]), torch.tensor([3]), 1.0, lam)
    assert found.tolist() == advantages
    if lam == 1:
        assert returns.tolist() == [5, 5, 4]  # whatever the values


def test_without_tokens():
    advantages, returns = token_gae(torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.int64), 1.0, 0.95)
    assert len(advantages) == len(returns) == 0
    found, _ = token_gae(torch.tensor([1.0]), torch.tensor([0.25]), torch.tensor([0, 1, 0]), 1.0, 0.95)
    assert found.tolist() == [0.75]


@steady
@given(st.data())
def test_tokens_as_the_literal_sums(data):
    lengths = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=6))
    gamma, lam = data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))
    rewards, values = (data.draw(st.lists(numbers, min_size=sum(lengths), max_size=sum(lengths))) for _ in range(2))
    found, returns = token_gae(torch.tensor(rewards), torch.tensor(values), torch.tensor(lengths), gamma, lam)
    expected, first = [], 0
    for length in lengths:
        own = slice(first, first + length)
        expected += literal(rewards[own], values[own], [*values[own][1:], 0.0], [True] * length, gamma, lam)
        first += length
    np.testing.assert_allclose(found.tolist(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns.tolist(), np.add(expected, values), rtol=1e-5, atol=1e-5)


def segment(terminated=(), truncated=(), finals=None):
    """Four steps of one environment, rewards 1, values 10, 20, 30, 40, and 50 after the last; gamma lambda = 1."""
    ends = {"terminated": torch.zeros(4, 1, dtype=torch.bool), "truncated": torch.zeros(4, 1, dtype=torch.bool)}
    ends["terminated"][list(terminated)] = True
    ends["truncated"][list(truncated)] = True
    final = torch.full((4, 1), torch.nan)
    for t, value in (finals or {}).items():
        final[t] = value
    found, returns = segment_gae(torch.ones(4, 1), torch.tensor([[10.0], [20], [30], [40]]), ends["terminated"],
                                 ends["truncated"], final, torch.tensor([50.0]), 1.0, 1.0)
    return found[:, 0].tolist(), returns[:, 0].tolist()


def test_an_episode_that_goes_on_is_worth_what_comes_after_the_segment():
    assert segment() == ([44, 33, 22, 11], [54, 53, 52, 51])


def test_a_terminated_episode_has_no_value_left():
    # the second step ends an episode: nothing of the next one, 30, 40 and 50, reaches it
    assert segment(terminated=[1]) == ([-8, -19, 22, 11], [2, 1, 52, 51])


def test_a_truncated_episode_is_worth_what_it_was_cut_off_at():
    # cut off at an observation worth 25
    assert segment(truncated=[1], finals={1: 25.0}) == ([17, 6, 22, 11], [27, 26, 52, 51])
    # and with the last step, where the observation after it is that of a new episode
    assert segment(truncated=[3], finals={3: 0.0}) == ([-6, -17, -28, -39], [4, 3, 2, 1])


def test_termination_counts_where_both_are_true():
    assert segment(terminated=[1], truncated=[1], finals={1: 25.0}) == segment(terminated=[1])


@steady
@given(st.data())
def test_segments_as_the_literal_sums(data):
    steps, environments = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    shape = steps, environments

    def draw(strategy):
        return np.array(data.draw(st.lists(strategy, min_size=steps * environments, max_size=steps * environments))
                        ).reshape(shape)

    rewards, values, finals, terminated, truncated = map(draw, (numbers, numbers, numbers, st.booleans(), st.booleans()))
    last = np.array(data.draw(st.lists(numbers, min_size=environments, max_size=environments)))
    gamma, lam = data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))
    tensors = [torch.from_numpy(np.asarray(one)) for one in (rewards, values, terminated, truncated, finals, last)]
    found, returns = segment_gae(*tensors, gamma, lam)
    assert found.dtype == returns.dtype == torch.float32
    following = np.concatenate([values[1:], last[None]])
    for e in range(environments):
        afters = [0.0 if terminated[t, e] else finals[t, e] if truncated[t, e] else following[t, e] for t in range(steps)]
        expected = literal(rewards[:, e], values[:, e], afters, ~(terminated | truncated)[:, e], gamma, lam)
        np.testing.assert_allclose(found[:, e], expected, rtol=1e-5, atol=1e-4)
        np.testing.assert_allclose(returns[:, e], np.add(expected, values[:, e]), rtol=1e-5, atol=1e-4)


def test_environments_do_not_see_each_other():
    noise = torch.Generator().manual_seed(0)
    rewards, values, finals = torch.randn(3, 5, 4, generator=noise)
    ends = torch.rand(2, 5, 4, generator=noise) < 0.3
    last = torch.randn(4, generator=noise)
    whole, _ = segment_gae(rewards, values, ends[0], ends[1], finals, last, 0.9, 0.8)
    for e in range(4):
        one = slice(e, e + 1)
        alone, _ = segment_gae(rewards[:, one], values[:, one], ends[0][:, one], ends[1][:, one], finals[:, one], last[one],
                               0.9, 0.8)
        assert torch.equal(whole[:, one], alone)


def test_a_sample_is_a_segment_that_terminates():
    noise = torch.Generator().manual_seed(1)
    lengths = torch.tensor([3, 1, 4])
    rewards, values = torch.randn(2, 8, generator=noise)
    found, _ = token_gae(rewards, values, lengths, 0.97, 0.9)
    for first, last in itertools.pairwise([0, 3, 4, 8]):
        ends = torch.zeros(last - first, 1, dtype=torch.bool)
        ends[-1] = True
        alone, _ = segment_gae(rewards[first:last, None], values[first:last, None], ends, torch.zeros_like(ends),
                               torch.zeros(last - first, 1), torch.zeros(1), 0.97, 0.9)
        assert torch.allclose(found[first:last], alone[:, 0], atol=1e-6)

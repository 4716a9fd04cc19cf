"""Which samples take part, and what length costs."""

import pytest
import torch

from rlinf_grpo.shaping import overlong_punishment


def test_the_punishment_grows_over_the_buffer():
    lengths = torch.tensor([1, 12, 13, 14, 15, 16])
    assert overlong_punishment(lengths, 16, 0.25).tolist() == [0, 0, -0.25, -0.5, -0.75, -1]


def test_a_buffer_of_less_than_a_token_punishes_the_limit_only():
    assert overlong_punishment(torch.tensor([1, 2, 3]), 3, 0.2).tolist() == pytest.approx([0, 0, -1])


def test_the_whole_response_may_be_the_buffer():
    assert overlong_punishment(torch.tensor([1, 2, 4]), 4, 1.0).tolist() == [-0.25, -0.5, -1]


def test_the_punishment_has_a_size(variant, make_returns):
    algorithm = variant("grpo", normalize="none", overlong_buffer=0.2, overlong_penalty=0.4)
    got, metrics = algorithm.advantages(make_returns([1.0, 1.0], [0, 0], [5, 10]))
    assert got.tolist() == pytest.approx([0.2, -0.2])
    assert metrics == pytest.approx({"actor/overlong_penalty": 0.2})


def test_kept_or_dropped_when_all_rewards_of_a_prompt_are_equal(variant, make_returns):
    returns = make_returns([1.0, 1.0, 0.0, 1.0], [0, 0, 1, 1])
    assert variant().takes_part(returns).tolist() == [True] * 4
    assert variant(zero_variance="drop").takes_part(returns).tolist() == [False, False, True, True]
    assert variant(rounds=2).takes_part(returns).tolist() == [False, False, True, True]


def test_rewards_are_compared_as_they_came(variant, make_returns):
    algorithm = variant("dapo")
    punished = make_returns([1.0, 1.0], [0, 0], [1, 10])
    assert algorithm.takes_part(punished).tolist() == [False, False]
    assert algorithm.advantages(punished)[0].abs().min() > 0


def test_responses_that_were_cut_are_left_out(variant, make_returns):
    returns = make_returns([1.0, 0.0, 0.0, 1.0], [0, 0, 1, 1], truncated=[1, 2])
    assert variant(overlong_filter=True).takes_part(returns).tolist() == [True, False, False, True]


def test_prompts_are_compared_without_what_was_cut(variant, make_returns):
    returns = make_returns([1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [0, 0, 0, 1, 1, 1], truncated=[1, 3])
    algorithm = variant(overlong_filter=True, zero_variance="drop")
    assert algorithm.takes_part(returns).tolist() == [False, False, False, False, True, True]


def test_nothing_may_take_part(variant, make_returns):
    algorithm = variant("dapo", overlong_filter=True)
    assert algorithm.takes_part(make_returns([1.0, 0.0], [0, 0], truncated=[0, 1])).tolist() == [False, False]
    assert algorithm.takes_part(make_returns([1.0, 1.0], [0, 0])).tolist() == [False, False]

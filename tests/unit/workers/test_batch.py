"""From a step's samples to optimiser steps of ranks."""

import numpy as np
import pytest
import torch

from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.workers.batch import deal, is_comparable, minibatches, recomputes, step_returns, taking_part, token_advantages


class Centred(Algorithm):
    """The reward less its group's mean: enough to see who is in which group."""

    def advantages(self, returns):
        means = torch.zeros(int(returns.groups.max()) + 1).scatter_reduce(0, returns.groups, returns.rewards, "mean",
                                                                          include_self=False)
        return returns.rewards - means[returns.groups], {"actor/mean_reward": returns.rewards.mean().item()}


class Counting(Algorithm):
    """Of each token another advantage: its number in the step."""

    def advantages(self, returns):
        return torch.arange(int(returns.lengths.sum()), dtype=torch.float32), {}


class Picky(Centred):
    """Trains what is worth more than 1."""

    def takes_part(self, returns):
        return returns.rewards > 1


class Supervised(Algorithm):
    supervised = True


ALGORITHM = Centred(None)


@pytest.fixture
def config(configure):
    return lambda minibatches=1, epochs=1, *more: configure(
        f"algorithm.minibatches={minibatches}", f"algorithm.epochs={epochs}", "rollout.max_new_tokens=8", *more)


@pytest.fixture
def batch(sample):
    return [sample(f"0-{group}", number, float(group + number), length=2 + number) for group in range(3) for number in range(4)]


def test_what_the_samples_earned(sample):
    samples = [sample("a", 0, 1.0, 2, logprobs=np.array([-1, -2], np.float32)),
               sample("b", 0, 0.0, 3, masked=1, finish="length", logprobs=np.array([-3, -4, -5], np.float32)),
               sample("a", 1, 0.5, 1, logprobs=np.array([-6], np.float32))]
    returns = step_returns(samples, 3)
    assert returns.rewards.tolist() == [1.0, 0.0, 0.5]
    assert returns.groups.tolist() == [0, 1, 0]
    assert returns.lengths.tolist() == [2, 2, 1]
    assert returns.truncated.tolist() == [False, True, False]
    assert returns.longest == 3
    assert returns.logprobs.tolist() == [-1, -2, -4, -5, -6]
    assert returns.reference_logprobs is None


def test_the_reference_is_given_token_by_token_too(sample):
    samples = [sample("a", 0, length=2, masked=1, reference_logprobs=np.array([-7, -8], np.float32)),
               sample("a", 1, length=1, reference_logprobs=np.array([-9], np.float32))]
    assert step_returns(samples, 3).reference_logprobs.tolist() == [-8, -9]


def test_groups_are_told_apart_by_identity(batch):
    advantages, metrics = token_advantages(batch, ALGORITHM, 8)
    assert [one[0] for one in advantages] == pytest.approx([-1.5, -0.5, 0.5, 1.5] * 3)
    assert metrics == {"actor/mean_reward": pytest.approx(2.5)}


def test_an_advantage_of_each_token_goes_to_its_token(sample):
    samples = [sample("a", 0, length=3, masked=1), sample("a", 1, length=1), sample("b", 0, length=4, masked=2)]
    advantages, _ = token_advantages(samples, Counting(None), 8)
    assert [one.tolist() for one in advantages] == [[0, 0, 1], [2], [0, 0, 3, 4]]


def test_advantages_of_another_number_are_an_error(batch):
    class Wrong(Algorithm):
        def advantages(self, returns):
            return torch.zeros(5), {}

    with pytest.raises(ValueError, match=r"advantages of shape \(5,\) for 12 samples with 42 trained tokens"):
        token_advantages(batch, Wrong(None), 8)


def test_who_does_not_take_part_counts_for_nothing(batch):
    kept = taking_part(batch, Picky(None), 8)
    assert {one.reward for one in kept} == {2.0, 3.0, 4.0, 5.0}
    advantages, metrics = token_advantages(kept, Picky(None), 8)
    # of the first group the rewards 2 and 3 are left
    assert [one[0] for one in advantages[:2]] == pytest.approx([-0.5, 0.5])
    assert metrics["actor/mean_reward"] > 2.5
    assert taking_part([], Picky(None), 8) == []


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize(("number", "epochs"), [(1, 1), (2, 1), (3, 2)])
def test_every_sample_is_trained_once_a_pass_whatever_the_split(batch, config, world, number, epochs):
    parts = deal(batch, ALGORITHM, config(number, epochs), 7, world).parts
    assert len(parts) == world
    assert {len(part) for part in parts} == {number * epochs}
    for epoch in range(epochs):
        ids = sorted(item.sample.id for part in parts for items in part[epoch * number : (epoch + 1) * number] for item in items)
        assert ids == sorted(one.id for one in batch)


@pytest.mark.parametrize("world", [1, 2])
def test_the_shares_of_an_optimiser_step_sum_to_one_over_all_ranks(batch, config, world):
    parts = deal(batch, ALGORITHM, config(2), 0, world).parts
    for step in range(2):
        assert sum(float(item.weights.sum()) for part in parts for item in part[step]) == pytest.approx(1.0)


def test_optimiser_steps_do_not_depend_on_the_ranks(batch, config):
    def contents(world):
        parts = deal(batch, ALGORITHM, config(3), 4, world).parts
        return [sorted((item.sample.id, item.advantages.tolist(), item.weights.tolist()) for part in parts for item in part[step])
                for step in range(3)]

    assert contents(1) == contents(2) == contents(4)


def test_masked_tokens_have_neither_advantage_nor_weight(sample, config):
    samples = [sample("a", 0, 1.0, length=5, masked=2), sample("a", 1, 0.0, length=3)]
    (steps,) = deal(samples, ALGORITHM, config(), 0, 1).parts
    item = next(item for item in steps[0] if item.sample.id == "a/0000")
    assert item.advantages.tolist() == [0.0, 0.0, 0.5, 0.5, 0.5]
    assert item.weights.tolist() == pytest.approx([0.0, 0.0, 1 / 6, 1 / 6, 1 / 6])


def test_a_response_without_a_token_is_not_trained(sample, config):
    samples = [sample("a", 0, 1.0, length=0, finish="abort"), sample("a", 1, 0.0, length=2), sample("a", 2, 3.0, length=2)]
    (steps,) = deal(samples, ALGORITHM, config(3), 0, 1).parts
    assert sorted(item.sample.id for items in steps for item in items) == ["a/0001", "a/0002"]
    assert sorted(float(item.advantages[0]) for items in steps for item in items) == [-1.5, 1.5]


def test_equal_rewards_have_advantages_of_exactly_zero(configure, sample):
    """Scenario N3, with the built-in algorithm."""
    from rlinf_grpo.algorithm import GRPO
    from rlinf_grpo.config import GRPOConfig

    samples = [sample("a", number, 0.1) for number in range(5)] + [sample("b", number, number / 3) for number in range(5)]
    (steps,) = deal(samples, GRPO(GRPOConfig()), configure(), 0, 1).parts
    found = {item.sample.id: item.advantages for items in steps for item in items}
    assert all((found[one.id] == 0).all() for one in samples[:5])
    assert all(np.abs(found[one.id]).min() > 0 for one in samples[5:] if one.reward != pytest.approx(2 / 3))


def test_nobody_to_train(config):
    dealt = deal([], ALGORITHM, config(2), 0, 2)
    assert dealt.parts == [[], []]
    assert dealt.metrics == {}


def test_examples_are_trained_without_rewards(sample, config):
    samples = [sample(f"0-{number}", reward=float("nan"), length=1 + number, masked=number % 2) for number in range(3)]
    dealt = deal(samples, Supervised(None), config(), 0, 1)
    items = {item.sample.id: item for items in dealt.parts[0] for item in items}
    assert len(items) == 3
    assert all(item.advantages.tolist() == item.sample.mask.tolist() for item in items.values())
    assert not any(item.comparable for item in items.values())


@pytest.mark.parametrize(("key", "truncated"), [
    ("rollout.top_k=3", True), ("rollout.top_p=0.9", True), ("rollout.min_p=0.1", True), ("rollout.temperature=0.5", False)])
def test_a_truncated_distribution_cannot_be_compared_with(batch, config, key, truncated):
    """Scenario N2: then the trainer's own log-probabilities are taken."""
    chosen = config(1, 1, key)
    assert is_comparable(ALGORITHM, chosen.rollout) is not truncated
    assert recomputes(ALGORITHM, chosen.rollout) is truncated
    items = [item for items in deal(batch, ALGORITHM, chosen, 0, 1).parts[0] for item in items]
    assert {item.comparable for item in items} == {not truncated}
    assert all(item.old_logprobs is None for item in items)


def test_an_algorithm_can_ask_for_a_second_look(config):
    class Careful(Centred):
        needs_recompute = True

    assert recomputes(Careful(None), config().rollout)
    assert is_comparable(Careful(None), config().rollout)
    assert not recomputes(ALGORITHM, config().rollout)
    assert not recomputes(Supervised(None), config(1, 1, "rollout.top_k=3").rollout)


def test_the_order_is_a_function_of_seed_version_and_pass():
    def order(seed, version):
        return list(minibatches(24, 2, 2, seed, version))

    assert order(0, 5) == order(0, 5)
    assert order(0, 5) != order(0, 6)
    assert order(0, 5) != order(1, 5)
    first, second = order(0, 5)[:2], order(0, 5)[2:]
    assert first != second


def test_no_optimiser_step_is_empty():
    assert [len(chosen) for chosen in minibatches(3, 1, 8, 0, 0)] == [1, 1, 1]


@pytest.mark.parametrize(("groups", "whole"), [(8, True), (7, False)])
def test_ranks_get_whole_groups_when_there_are_enough_to_balance(sample, config, groups, whole):
    samples = [sample(f"0-{group}", number) for group in range(groups) for number in range(4)]
    parts = deal(samples, ALGORITHM, config(), 0, 2).parts
    seen = [{item.sample.group_id for item in part[0]} for part in parts]
    assert seen[0].isdisjoint(seen[1]) == whole
    assert abs(len(parts[0][0]) - len(parts[1][0])) <= 4

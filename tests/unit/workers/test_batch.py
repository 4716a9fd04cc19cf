"""From a step's samples to optimiser steps of ranks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.workers.batch import deal, minibatches, sample_advantages


def sample(group, number, reward, length=3, masked=0):
    mask = np.ones(length, np.bool_)
    mask[:masked] = False
    return Sample(f"{group}/{number:04d}", group, np.zeros(4, np.int32), np.zeros(length, np.int32), mask,
                  np.zeros(length, np.float32), np.zeros(length, np.int32), "stop", reward=reward)


class Centred:
    """The reward less its group's mean: enough to see who is in which group."""

    aggregation = "token-mean"
    needs_entropy = False

    def advantages(self, returns):
        means = torch.zeros(int(returns.groups.max()) + 1).scatter_reduce(0, returns.groups, returns.rewards, "mean",
                                                                          include_self=False)
        return returns.rewards - means[returns.groups]


def config(minibatches=1, epochs=1, seed=0):
    return SimpleNamespace(seed=seed, rollout=SimpleNamespace(max_new_tokens=8),
                           algorithm=SimpleNamespace(epochs=epochs, minibatches=minibatches))


def batch():
    return [sample(f"0-{group}", number, float(group + number), length=2 + number) for group in range(3) for number in range(4)]


def test_groups_are_told_apart_by_identity():
    advantages = sample_advantages(batch(), Centred())
    assert advantages.tolist() == pytest.approx([-1.5, -0.5, 0.5, 1.5] * 3)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize(("number", "epochs"), [(1, 1), (2, 1), (3, 2)])
def test_every_sample_is_trained_once_a_pass_whatever_the_split(world, number, epochs):
    parts = deal(batch(), Centred(), config(number, epochs), 7, world)
    assert len(parts) == world
    assert {len(part) for part in parts} == {number * epochs}
    for epoch in range(epochs):
        ids = sorted(item.sample.id for part in parts for items in part[epoch * number : (epoch + 1) * number] for item in items)
        assert ids == sorted(one.id for one in batch())


@pytest.mark.parametrize("world", [1, 2])
def test_the_shares_of_an_optimiser_step_sum_to_one_over_all_ranks(world):
    parts = deal(batch(), Centred(), config(2), 0, world)
    for step in range(2):
        assert sum(float(item.weights.sum()) for part in parts for item in part[step]) == pytest.approx(1.0)


def test_optimiser_steps_do_not_depend_on_the_ranks():
    def contents(world):
        parts = deal(batch(), Centred(), config(3), 4, world)
        return [sorted((item.sample.id, item.advantages.tolist(), item.weights.tolist()) for part in parts for item in part[step])
                for step in range(3)]

    assert contents(1) == contents(2) == contents(4)


def test_masked_tokens_have_neither_advantage_nor_weight():
    samples = [sample("a", 0, 1.0, length=5, masked=2), sample("a", 1, 0.0, length=3)]
    (steps,) = deal(samples, Centred(), config(), 0, 1)
    item = next(item for item in steps[0] if item.sample.id == "a/0000")
    assert item.advantages.tolist() == [0.0, 0.0, 0.5, 0.5, 0.5]
    assert item.weights.tolist() == pytest.approx([0.0, 0.0, 1 / 6, 1 / 6, 1 / 6])


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
def test_ranks_get_whole_groups_when_there_are_enough_to_balance(groups, whole):
    samples = [sample(f"0-{group}", number, 0.0) for group in range(groups) for number in range(4)]
    parts = deal(samples, Centred(), config(), 0, 2)
    seen = [{item.sample.group_id for item in part[0]} for part in parts]
    assert seen[0].isdisjoint(seen[1]) == whole
    assert abs(len(parts[0][0]) - len(parts[1][0])) <= 4

"""From a step's samples to what each rank trains in each optimiser step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlinf_cli.contracts.algorithm import Algorithm, Returns
from rlinf_cli.contracts.trainer import TrainItem
from rlinf_cli.rl.aggregation import token_weights
from rlinf_cli.rl.packing import partition
from rlinf_cli.rl.trajectory import FloatArray, Sample

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig

Parts = list[list[TrainItem]]
"""What one rank trains: its items of each optimiser step."""

GROUPS_A_RANK = 4
"""Whole groups go to a rank from so many on: fewer could leave a rank with much less to do than another."""


def deal(samples: Sequence[Sample], algorithm: Algorithm, config: RunConfig, version: int, world: int) -> list[Parts]:
    """The parts of each rank. The samples are those with a reward, in a fixed order.

    Everything that depends on the whole step (advantages, the share of each token in the loss) is settled here, so the
    gradient does not depend on how the items are split over ranks and micro-batches.
    """
    advantages = sample_advantages(samples, algorithm, config.rollout.max_new_tokens)
    parts: list[Parts] = [[] for _ in range(world)]
    for chosen in minibatches(len(samples), config.algorithm.epochs, config.algorithm.minibatches, config.seed, version):
        items = _items([samples[i] for i in chosen], advantages[chosen], algorithm, config.rollout.max_new_tokens)
        for part, share in zip(parts, _shares(items, world), strict=True):
            part.append([items[i] for i in share])
    return parts


def sample_advantages(samples: Sequence[Sample], algorithm: Algorithm, longest: int) -> FloatArray:
    """The algorithm's advantage of each sample, float32 [B]."""
    import torch

    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(sample.group_id, len(numbers)) for sample in samples]
    returns = Returns(torch.tensor([sample.reward for sample in samples], dtype=torch.float32), torch.tensor(groups),
                      torch.tensor([int(sample.mask.sum()) for sample in samples]),
                      torch.tensor([sample.finish == "length" for sample in samples]), longest,
                      torch.from_numpy(np.concatenate([sample.logprobs[sample.mask] for sample in samples])))
    advantages: FloatArray = algorithm.advantages(returns)[0].numpy()
    return advantages


def minibatches(count: int, epochs: int, number: int, seed: int, version: int) -> Iterator[list[int]]:
    """Which samples each optimiser step trains: each pass covers all in an order of its own, a function of (seed,
    version, pass). Samples are drawn one by one, not by group, so that each optimiser step sees as many prompts as it
    can; there are never more optimiser steps than samples.
    """
    for epoch in range(epochs):
        noise = np.random.Generator(np.random.Philox(key=[seed, version], counter=[0, 0, 0, epoch]))
        for chosen in np.array_split(noise.permutation(count), min(count, number)):
            yield sorted(chosen.tolist())


def _shares(items: Sequence[TrainItem], world: int) -> list[list[int]]:
    """Each rank's items, about as many tokens for each. Whole groups, which share their prompt, where there are enough of
    them to balance."""
    lengths = [len(item.sample) for item in items]
    members = _members([item.sample.group_id for item in items])
    if len(members) < GROUPS_A_RANK * world:
        return partition(lengths, world)
    totals = [sum(lengths[i] for i in group) for group in members]
    return [[i for group in share for i in members[group]] for share in partition(totals, world)]


def _members(groups: Sequence[str]) -> list[list[int]]:
    """The places of each group's samples, the groups in order of appearance."""
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    return list(members.values())


def _items(samples: Sequence[Sample], advantages: FloatArray, algorithm: Algorithm, longest: int) -> list[TrainItem]:
    weights = token_weights([sample.mask for sample in samples], algorithm.aggregation, longest)
    return [TrainItem(sample, np.where(sample.mask, advantage, np.float32(0)), share)
            for sample, advantage, share in zip(samples, advantages, weights, strict=True)]

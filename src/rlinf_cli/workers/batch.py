"""From a step's samples to what each rank trains in each optimiser step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from rlinf_cli.contracts.algorithm import Algorithm, Returns
from rlinf_cli.contracts.trainer import TrainItem, ValueItem
from rlinf_cli.rl.aggregation import token_weights
from rlinf_cli.rl.packing import partition
from rlinf_cli.rl.trajectory import FloatArray, Sample

if TYPE_CHECKING:
    from torch import Tensor

    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.config.sections import RolloutConfig

Item = TypeVar("Item", TrainItem, ValueItem)

Parts = list[list[Item]]
"""What one rank trains: its items of each optimiser step."""

Made = tuple[Callable[[int, FloatArray], Item], Mapping[str, float]]
"""From a sample's number and its tokens' shares to its item, and metrics of the step."""

GROUPS_A_RANK = 4
"""Whole groups go to a rank from so many on: fewer could leave a rank with much less to do than another."""


@dataclass(frozen=True)
class Dealt(Generic[Item]):
    """A step that is ready to be trained."""

    parts: list[Parts[Item]]
    """Of each rank; without an optimiser step when there is no sample."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """What the algorithm measured over the whole step."""
    state: Mapping[str, float] = field(default_factory=dict)
    """`Algorithm.state` after the step."""


def deal(samples: Sequence[Sample], algorithm: Algorithm, config: RunConfig, version: int, world: int) -> Dealt[TrainItem]:
    """What each rank of the policy trains; see `_deal`."""
    return _deal(samples, algorithm, config, version, world, _policy_items)


def deal_values(samples: Sequence[Sample], algorithm: Algorithm, config: RunConfig, version: int,
                world: int) -> Dealt[ValueItem]:
    """What each rank of the critic trains; see `_deal`. The optimiser steps are of the same samples as the policy's."""
    return _deal(samples, algorithm, config, version, world, _value_items)


def _deal(samples: Sequence[Sample], algorithm: Algorithm, config: RunConfig, version: int, world: int,
          make: Callable[[Sequence[Sample], Algorithm, RunConfig], Made[Item]]) -> Dealt[Item]:
    """The parts of each rank. The samples are those that take part, in a fixed order; one without a trained token does
    not (an aborted response).

    Everything that depends on the whole step (advantages, the share of each token in the loss) is settled here, so the
    gradient does not depend on how the items are split over ranks and micro-batches.
    """
    parts: list[Parts[Item]] = [[] for _ in range(world)]
    samples = [sample for sample in samples if sample.mask.any()]
    if not samples:
        return Dealt(parts, state=algorithm.state)
    longest = config.longest_response
    item_of, metrics = make(samples, algorithm, config)
    for chosen in minibatches(len(samples), config.algorithm.epochs, config.algorithm.minibatches, config.seed, version):
        weights = token_weights([samples[i].mask for i in chosen], algorithm.aggregation, longest)
        items = [item_of(i, share) for i, share in zip(chosen, weights, strict=True)]
        for part, share in zip(parts, shares(items, world), strict=True):
            part.append(share)
    state = algorithm.state if algorithm.supervised else algorithm.next_state(step_returns(samples, longest))
    return Dealt(parts, metrics, state)


def _policy_items(samples: Sequence[Sample], algorithm: Algorithm, config: RunConfig) -> Made[TrainItem]:
    advantages, metrics = token_advantages(samples, algorithm, config.longest_response)
    comparable = is_comparable(algorithm, config.rollout)
    return lambda i, share: TrainItem(samples[i], advantages[i], share, comparable=comparable), metrics


def _value_items(samples: Sequence[Sample], algorithm: Algorithm, config: RunConfig) -> Made[ValueItem]:
    returns = step_returns(samples, config.longest_response)
    found, metrics = algorithm.value_targets(returns)
    old, targets = (_laid_out(samples, tensor.numpy()) for tensor in (found.outputs, found.targets))
    return lambda i, share: ValueItem(samples[i], old[i], targets[i], share), metrics


def is_comparable(algorithm: Algorithm, rollout: RolloutConfig) -> bool:
    """Whether the samples' log-probabilities are those of the distribution that the trainer computes."""
    return not algorithm.supervised and not rollout.is_truncated


def recomputes(algorithm: Algorithm, rollout: RolloutConfig) -> bool:
    """Whether the trainer computes the samples' log-probabilities again, at the start of each step."""
    return not algorithm.supervised and (algorithm.needs_recompute or rollout.is_truncated)


def taking_part(samples: Sequence[Sample], algorithm: Algorithm, longest: int) -> list[Sample]:
    """Those of the samples, all with a reward, that the algorithm trains."""
    if not samples:
        return []
    chosen = algorithm.takes_part(step_returns(samples, longest)).tolist()
    return [sample for sample, takes_part in zip(samples, chosen, strict=True) if takes_part]


def token_advantages(samples: Sequence[Sample], algorithm: Algorithm,
                     longest: int) -> tuple[list[FloatArray], Mapping[str, float]]:
    """The algorithm's advantage of each response token, 0 where it is not trained, and its metrics of the step.

    In supervised training every trained token has 1.
    """
    if algorithm.supervised:
        return [sample.mask.astype(np.float32) for sample in samples], {}
    returns = step_returns(samples, longest)
    found, metrics = algorithm.advantages(returns)
    return _laid_out(samples, _a_token(found, returns)), metrics


def _laid_out(samples: Sequence[Sample], values: FloatArray) -> list[FloatArray]:
    """Of each response token its value, 0 where it is not trained, from those of the trained tokens end to end, [N]."""
    arrays = [np.zeros(len(sample.mask), np.float32) for sample in samples]
    ends = np.cumsum([np.count_nonzero(sample.mask) for sample in samples])[:-1]
    for array, sample, own in zip(arrays, samples, np.split(values, ends), strict=True):
        array[sample.mask] = own
    return arrays


def _a_token(advantages: Tensor, returns: Returns) -> FloatArray:
    """[N], where they may be [B]. Both have one length only where each sample has one trained token, and then mean the
    same."""
    count, tokens = len(returns.lengths), int(returns.lengths.sum())
    if advantages.shape not in {(count,), (tokens,)}:
        raise ValueError(f"the algorithm gave advantages of shape {tuple(advantages.shape)} for {count} samples with "
                         f"{tokens} trained tokens: either number is right")
    whole = advantages if len(advantages) == tokens else advantages.repeat_interleave(returns.lengths)
    array: FloatArray = whole.numpy()
    return array


def step_returns(samples: Sequence[Sample], longest: int) -> Returns:
    """What the samples earned, as algorithms are told."""
    import torch

    numbers: dict[str, int] = {}
    groups = [numbers.setdefault(sample.group_id, len(numbers)) for sample in samples]
    return Returns(
        rewards=torch.tensor([sample.reward for sample in samples], dtype=torch.float32), groups=torch.tensor(groups),
        lengths=torch.tensor([int(sample.mask.sum()) for sample in samples]),
        truncated=torch.tensor([sample.finish == "length" for sample in samples]), longest=longest,
        logprobs=_trained(samples, [sample.logprobs for sample in samples]),
        reference_logprobs=_if_known(samples, [sample.reference_logprobs for sample in samples]),
        values=_if_known(samples, [sample.values for sample in samples]))


def _if_known(samples: Sequence[Sample], arrays: Sequence[FloatArray | None]) -> Tensor | None:
    known = [array for array in arrays if array is not None]
    return _trained(samples, known) if len(known) == len(samples) else None


def _trained(samples: Sequence[Sample], arrays: Sequence[FloatArray]) -> Tensor:
    """The values at trained tokens, end to end."""
    import torch

    return torch.from_numpy(np.concatenate(arrays)[np.concatenate([sample.mask for sample in samples])])


def minibatches(count: int, epochs: int, number: int, seed: int, version: int) -> Iterator[list[int]]:
    """Which samples each optimiser step trains: each pass covers all in an order of its own, a function of (seed,
    version, pass). Samples are drawn one by one, not by group, so that each optimiser step sees as many prompts as it
    can; there are never more optimiser steps than samples.
    """
    for epoch in range(epochs):
        noise = np.random.Generator(np.random.Philox(key=[seed, version], counter=[0, 0, 0, epoch]))
        for chosen in np.array_split(noise.permutation(count), min(count, number)):
            yield sorted(chosen.tolist())


def shares(items: Sequence[Item], world: int, before: Sequence[int] = ()) -> list[list[Item]]:
    """Each rank's items, about as many tokens for each, with those that it had before. Whole groups, which share their
    prompt, where there are enough of them to balance."""
    lengths = [len(item.sample) for item in items]
    members = _members([item.sample.group_id for item in items])
    if len(members) < GROUPS_A_RANK * world:
        return [[items[i] for i in share] for share in partition(lengths, world, before)]
    totals = [sum(lengths[i] for i in group) for group in members]
    return [[items[i] for group in share for i in members[group]] for share in partition(totals, world, before)]


def _members(groups: Sequence[str]) -> list[list[int]]:
    """The places of each group's samples, the groups in order of appearance."""
    members: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    return list(members.values())

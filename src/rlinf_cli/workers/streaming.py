"""Training a step while its samples are still being made: what rank 0 knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.contracts.trainer import TrainItem
from rlinf_cli.errors import RunError
from rlinf_cli.rl.aggregation import share_count, token_shares
from rlinf_cli.rl.statistics import trainable
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.state.granularity import Bounds
from rlinf_cli.workers.batch import is_comparable, shares, taking_part, token_advantages
from rlinf_cli.workers.gathering import StepSamples, first_groups, nothing_to_train

CHUNKS = 4
"""Into so many pieces a step can be cut, however small: with fewer, nothing would be gained by not waiting for it."""


@dataclass(frozen=True)
class Finish:
    """The end of a step on all ranks: `count` is what its shares are divided by; 0 where nobody took part."""

    count: int


class Traits(Protocol):
    """What it depends on of an algorithm."""

    @property
    def per_group(self) -> bool: ...

    @property
    def rounds(self) -> int: ...

    @property
    def supervised(self) -> bool: ...


def can_stream(algorithm: Traits, config: RunConfig) -> bool:
    """Whether a step's gradient is a sum over its prompts, each known by itself but for the count in the mean."""
    one_pass = config.algorithm.epochs == config.algorithm.minibatches == algorithm.rounds == 1
    return algorithm.per_group and one_pass and not algorithm.supervised and not config.deterministic


class StreamedStep:
    """One step's samples, dealt out as they come. `world`: ranks that train them."""

    def __init__(self, algorithm: Algorithm, config: RunConfig, world: int) -> None:
        self._algorithm, self._config = algorithm, config
        self._loads = [0] * world
        self._trained: list[Sample] = []
        self._groups: list[SampleGroup] = []
        self._chunks = 0
        self.count = 0
        """What the shares are to be divided by."""

    def deal(self, groups: Sequence[SampleGroup]) -> list[list[TrainItem]]:
        """Each rank's items of some prompts' samples."""
        self._groups += groups
        self._chunks += 1
        samples = self._chosen([sample for group in groups for sample in group])
        if not samples:
            return [[] for _ in self._loads]
        longest, mode = self._config.longest_response, self._algorithm.aggregation
        masks = [sample.mask for sample in samples]
        advantages, _ = token_advantages(samples, self._algorithm, longest)
        comparable = is_comparable(self._algorithm, self._config.rollout)
        items = [TrainItem(sample, advantage, share, comparable=comparable) for sample, advantage, share in
                 zip(samples, advantages, token_shares(masks, mode, longest), strict=True)]
        self._trained += samples
        self.count += share_count(masks, mode)
        return self._balanced(items)

    def result(self, version: int) -> tuple[list[Sample], dict[str, float]]:
        """All samples of the step, and its metrics, as where they are gathered first. `version`: that of the policy to be
        trained. Raises RunError when no sample has a reward."""
        gathered = StepSamples(self._algorithm, self._config)
        gathered.add(self._groups)
        if not trainable(gathered.all):
            raise RunError(nothing_to_train(gathered.all))
        metrics = gathered.metrics(version) | {"actor/chunk": len(self._groups) / self._chunks}
        if self._trained:
            in_order = sorted(self._trained, key=lambda one: one.id)
            metrics |= token_advantages(in_order, self._algorithm, self._config.longest_response)[1]
        return gathered.all, metrics

    def _chosen(self, samples: Sequence[Sample]) -> list[Sample]:
        """Those that are trained; of no more prompts than a step has."""
        taking = taking_part(trainable(samples), self._algorithm, self._config.longest_response)
        room = self._config.rollout.prompts - len({sample.group_id for sample in self._trained})
        return [sample for sample in first_groups(taking, room) if sample.mask.any()]

    def _balanced(self, items: Sequence[TrainItem]) -> list[list[TrainItem]]:
        dealt = shares(items, len(self._loads), self._loads)
        for rank, part in enumerate(dealt):
            self._loads[rank] += sum(len(item.sample) for item in part)
        return dealt


def bounds(samples: Sequence[Sample], prompts: int, budget: int) -> Bounds:
    """A chunk has the tokens of a full micro-batch on all ranks (`budget`), as far as a step has so many."""
    groups = len({sample.group_id for sample in samples})
    each = sum(map(len, samples)) / max(1, groups)
    return Bounds(max(1, min(int(budget / max(1.0, each)), prompts // CHUNKS)), prompts)

"""What trainers of policies and of a critic have in common: one model on each rank, gradients summed over the ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlinf_cli.api import Adapter, Ranks, Sample, TrainItem, ValueItem
from rlinf_torch import checkpoint
from rlinf_torch.accounts import Accounts, Tally, merge
from rlinf_torch.distributed import RankGroup
from rlinf_torch.microbatch import MicroBatch, Rows, micro_batch, plan
from rlinf_torch.offloading import DeviceMemory, give_back, move, resting_place
from rlinf_torch.optimiser import Optimiser
from rlinf_torch.policy import Policy
from rlinf_torch.trainer_config import TorchTrainerConfig

Item = TypeVar("Item", TrainItem, ValueItem)
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Seen:
    """The `Tally` of one micro-batch, still on the device: scalar tensors."""

    tokens: int
    weights: Tensor
    metrics: Mapping[str, Tensor]
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    largest: Mapping[str, Tensor] = field(default_factory=dict)


class ModelTrainer:
    """Base of `TorchTrainer`, `TorchPolicyTrainer` and `TorchCritic`. `role`: what the names of its metrics begin with."""

    role: str

    def __init__(self, config: TorchTrainerConfig, policy: Policy, device: str, ranks: Ranks, total_steps: int) -> None:
        self._config, self._device, self._rank = config, torch.device(device), ranks.rank
        self._group = RankGroup(ranks, self._device)
        self._accounts = Accounts(self._group)
        self._policy = policy
        self._policy.model.to(self._device)
        self._optimiser = Optimiser(policy.trained, config, total_steps) if total_steps else None
        self._tallies: list[Tally] = []
        """Of the micro-batches whose gradients are there."""
        self._is_away = False
        self._kept: set[int] = set()
        """Identities of parameters that an engine in this process has in its memory."""
        self._group.require_equal(policy.checksum())

    def onload(self) -> int:
        if not self._is_away:
            return 0
        self._is_away = False
        return move(self._tensors(), DeviceMemory(self._device))

    def offload(self) -> int:
        memory = resting_place(self._config.offload, self._device)
        if memory is None or self._is_away:
            return 0
        self._is_away = True
        moved = move(self._tensors(), memory)
        give_back(self._device)
        return moved

    def save(self, directory: Path) -> None:
        if self._rank == 0:
            checkpoint.save(directory, self._policy, self._require_optimiser())

    def load(self, directory: Path) -> None:
        self.discard()
        checkpoint.load(directory, self._policy, self._require_optimiser())
        self._group.require_equal(self._policy.checksum())

    def discard(self) -> None:
        self._tallies = []
        self._require_optimiser().skip()

    def finish(self, scale: float) -> dict[str, float]:
        optimiser, role = self._require_optimiser(), self.role
        own, self._tallies = merge(self._tallies), []
        tally = self._accounts.exchange(own, self._gradients(scale))
        if not tally.tokens:
            raise ValueError("an optimiser step needs at least one trained token")
        loss = scale * tally.metrics[f"{role}/loss"]
        norm = optimiser.gradient_norm()
        self._require_finite(loss, norm.item())
        return {
            **{name: value / (tally.weights or 1.0) for name, value in tally.metrics.items()},
            f"{role}/loss": loss,
            **{name: value / tally.tokens for name, value in tally.sums.items()},
            **tally.largest,
            f"{role}/grad_norm": norm.item(),
            f"{role}/lr": optimiser.step(norm),
        }

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return self._policy.named_weights()

    def adapter(self) -> Adapter | None:
        return self._policy.adapter

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        return self._policy.adapter_weights()

    def _add(self, items: Sequence[Item], backward: Callable[[Sequence[Sequence[Item]]], Seen]) -> None:
        """Add the gradients of these items; `backward` is told the items of each row of a micro-batch."""
        items = [item for item in items if item.sample.mask.any()]
        self._accumulate(([[items[i] for i in row] for row in rows] for rows in self._plan([item.sample for item in items])),
                         backward)

    def _accumulate(self, batches: Iterable[Batch], backward: Callable[[Batch], Seen]) -> None:
        """Add the gradients of micro-batches."""
        self._require_optimiser()
        try:
            seen = [backward(batch) for batch in batches]
        except BaseException:
            self.discard()
            raise
        # read at the end only: reading makes the host wait for the device
        self._tallies += [read(one) for one in seen]

    def _score(self, samples: Sequence[Sample], score: Callable[[MicroBatch], Tensor]) -> list[NDArray[np.float32]]:
        """What `score` gives for each response token of the samples, without gradients."""
        scored = [np.empty(0, np.float32)] * len(samples)
        answered = [i for i, sample in enumerate(samples) if len(sample.response_ids)]
        for rows in self._plan([samples[i] for i in answered]):
            chosen = [[samples[answered[i]] for i in row] for row in rows]
            masks = [np.ones(len(sample.response_ids), np.bool_) for sample in chain(*chosen)]
            with torch.no_grad(), self._arithmetic():
                values = score(micro_batch(chosen, masks, self._device)).cpu().numpy()
            for i, part in zip(chain(*rows), np.split(values, np.cumsum([len(mask) for mask in masks])[:-1]), strict=True):
                scored[answered[i]] = part
        return scored

    def _laid_out(self, rows: Sequence[Sequence[Item]]) -> tuple[list[Item], MicroBatch]:
        """The items of a micro-batch one after the other, and their trained tokens."""
        items = list(chain(*rows))
        return items, micro_batch([[item.sample for item in row] for row in rows], [item.sample.mask for item in items],
                                  self._device)

    def _plan(self, samples: Sequence[Sample]) -> list[Rows]:
        return plan(samples, self._config.micro_batch_tokens, self._sharing_width())

    def _sharing_width(self) -> int:
        raise NotImplementedError

    def _gradients(self, scale: float) -> list[Tensor]:
        """Of all trained parameters: one that took no part here may have on another rank."""
        for parameter in self._policy.trained.values():
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in self._policy.trained.values() if parameter.grad is not None]
        if scale != 1.0:
            torch._foreach_mul_(gradients, scale)
        return gradients

    def _tensors(self) -> Iterator[Tensor]:
        """All that `offload` moves."""
        for parameter in self._policy.model.parameters():
            if id(parameter) not in self._kept:
                yield parameter
            if parameter.grad is not None:
                yield parameter.grad
        if self._optimiser is not None:
            yield from self._optimiser.state().values()

    def _require_finite(self, loss: float, norm: float) -> None:
        for name, value in ("loss", loss), ("norm of the gradient", norm):
            if not math.isfinite(value):
                optimiser = self._require_optimiser()
                optimiser.skip()
                raise FloatingPointError(f"the {name} is {value} in optimiser step {optimiser.steps + 1}; "
                                         "the weights were left as they were")

    def _require_optimiser(self) -> Optimiser:
        if self._optimiser is None:
            raise ValueError("this trainer was built with total_steps=0: its model is never trained")
        return self._optimiser

    def _arithmetic(self) -> AbstractContextManager[Any]:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._config.dtype == "bfloat16")


def read(seen: Seen) -> Tally:
    """Wait for what has been seen of one micro-batch."""
    metrics, sums, largest = ({name: value.item() for name, value in found.items()}
                              for found in (seen.metrics, seen.sums, seen.largest))
    return Tally(seen.tokens, seen.weights.item(), metrics, sums, largest)

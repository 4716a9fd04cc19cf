"""Trainer on plain PyTorch: every rank holds the whole model, gradients are summed over the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlinf_cli.api import Adapter, LossFunction, Ranks, Sample, TrainItem
from rlinf_torch import checkpoint
from rlinf_torch.activations import arrange
from rlinf_torch.distributed import RankGroup
from rlinf_torch.logprobs import TokenScorer
from rlinf_torch.microbatch import Rows, loss_inputs, micro_batch, plan
from rlinf_torch.offloading import DeviceMemory, give_back, move, resting_place
from rlinf_torch.optimiser import Optimiser
from rlinf_torch.policy import keep_tensors_in, open_policy
from rlinf_torch.trainer_config import TorchTrainerConfig


@dataclass(frozen=True)
class Tally:
    """What an optimiser step has seen so far: on one micro-batch, one rank, or all of them."""

    tokens: int = 0
    entropy: float = 0.0
    """Sum over tokens, as `logp_diff`."""
    logp_diff: float = 0.0
    logp_diff_max: float = 0.0
    weights: float = 0.0
    """Sum of the tokens' shares: 1 over a whole optimiser step, less under `sequence-sum`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The loss and what the loss function measured: sums with these weights."""


class TorchTrainer:
    """Contract: `rlinf_cli.api.Trainer`."""

    def __init__(self, config: TorchTrainerConfig, model: Path, device: str, ranks: Ranks, total_steps: int) -> None:
        self._config, self._device, self._rank = config, torch.device(device), ranks.rank
        self._group = RankGroup(ranks, self._device)
        self._policy = open_policy(model, config, trained=total_steps > 0)
        self._policy.model.to(self._device)
        self._scorer = TokenScorer(self._policy.model, keeping=arrange(self._policy.model, config.activations))
        self._optimiser = Optimiser(self._policy.trained, config, total_steps) if total_steps else None
        self._tallies: list[Tally] = []
        """Of the micro-batches whose gradients are there."""
        self._is_away = False
        self._kept: set[int] = set()
        """Identities of parameters that an engine in this process has in its memory."""
        self._group.require_equal(self._policy.checksum())

    def log_probs(self, samples: Sequence[Sample], temperature: float) -> list[NDArray[np.float32]]:
        scored = [np.empty(0, np.float32)] * len(samples)
        answered = [i for i, sample in enumerate(samples) if len(sample.response_ids)]
        for rows in self._plan([samples[i] for i in answered]):
            parts = self._score([[samples[answered[i]] for i in row] for row in rows], temperature)
            for i, part in zip(chain(*rows), parts, strict=True):
                scored[answered[i]] = part
        return scored

    def train_step(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> dict[str, float]:
        self.accumulate(items, loss, temperature, needs_entropy)
        return self.finish(1.0)

    def accumulate(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> None:
        self._require_optimiser()
        items = [item for item in items if item.sample.mask.any()]
        try:
            tallies = [self._backward([[items[i] for i in row] for row in rows], loss, temperature, needs_entropy)
                       for rows in self._plan([item.sample for item in items])]
        except BaseException:
            self.discard()
            raise
        # read at the end only: reading makes the host wait for the device
        self._tallies += [read(tally) for tally in tallies]

    def finish(self, scale: float) -> dict[str, float]:
        optimiser = self._require_optimiser()
        own, self._tallies = merge(self._tallies), []
        tally = merge(self._group.gather(own))
        if not tally.tokens:
            raise ValueError("an optimiser step needs at least one trained token")
        loss = scale * tally.metrics["actor/loss"]
        self._group.sum(self._gradients(scale))
        norm = optimiser.gradient_norm()
        self._require_finite(loss, norm.item())
        return {
            **{name: value / (tally.weights or 1.0) for name, value in tally.metrics.items()},
            "actor/loss": loss,
            "actor/entropy": tally.entropy / tally.tokens,
            "actor/logp_diff_mean": tally.logp_diff / tally.tokens,
            "actor/logp_diff_max": tally.logp_diff_max,
            "actor/grad_norm": norm.item(),
            "actor/lr": optimiser.step(norm),
        }

    def discard(self) -> None:
        self._tallies = []
        self._require_optimiser().skip()

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return self._policy.named_weights()

    def adapter(self) -> Adapter | None:
        return self._policy.adapter

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        return self._policy.adapter_weights()

    def keep_weights_in(self, room: Mapping[str, Tensor]) -> int:
        """See `SharingTrainer`."""
        kept = keep_tensors_in(self._policy.model, room)
        self._kept = set(map(id, kept))
        return sum(tensor.nbytes for tensor in kept)

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

    def _plan(self, samples: Sequence[Sample]) -> list[Rows]:
        return plan(samples, self._config.micro_batch_tokens, self._scorer.sharing_width)

    @torch.no_grad()
    def _score(self, rows: Sequence[Sequence[Sample]], temperature: float) -> list[NDArray[np.float32]]:
        masks = [np.ones(len(sample.response_ids), np.bool_) for sample in chain(*rows)]
        with self._arithmetic():
            logprobs, _ = self._scorer.score(micro_batch(rows, masks, self._device), temperature)
        return np.split(logprobs.cpu().numpy(), np.cumsum([len(mask) for mask in masks])[:-1])

    def _backward(self, rows: Sequence[Sequence[TrainItem]], loss: LossFunction, temperature: float,
                  needs_entropy: bool) -> dict[str, Tensor]:
        items = list(chain(*rows))
        batch = micro_batch([[item.sample for item in row] for row in rows], [item.sample.mask for item in items],
                            self._device)
        with self._arithmetic():
            logprobs, entropy = self._scorer.score(batch, temperature, needs_entropy)
        inputs = loss_inputs(items, batch, logprobs, entropy if needs_entropy else None)
        value, metrics = loss(inputs)
        value.backward()  # type: ignore[no-untyped-call]
        diff = (logprobs.detach() - inputs.sampled_logprobs).abs()
        return {"tokens": torch.tensor(len(diff)), "entropy": entropy.detach().sum(), "logp_diff": diff.sum(),
                "logp_diff_max": diff.max(), "weights": inputs.weights.sum(), "actor/loss": value.detach(), **metrics}

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


def read(row: Mapping[str, Tensor]) -> Tally:
    """The tally of one micro-batch from scalar tensors."""
    values = {name: value.item() for name, value in row.items()}
    tokens, entropy, diff, most, weights = (
        values.pop(name) for name in ("tokens", "entropy", "logp_diff", "logp_diff_max", "weights"))
    return Tally(int(tokens), entropy, diff, most, weights, values)


def merge(tallies: Sequence[Tally]) -> Tally:
    """The tally of all together."""
    metrics: dict[str, float] = {}
    for tally in tallies:
        for name, value in tally.metrics.items():
            metrics[name] = metrics.get(name, 0.0) + value
    return Tally(sum(tally.tokens for tally in tallies), sum(tally.entropy for tally in tallies),
                 sum(tally.logp_diff for tally in tallies),
                 max((tally.logp_diff_max for tally in tallies), default=0.0), sum(tally.weights for tally in tallies),
                 metrics)

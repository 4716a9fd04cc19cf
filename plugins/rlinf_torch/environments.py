"""Training of environments' policies on plain PyTorch: as of language models, but for what is computed of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf_cli.api import (
    Evaluated,
    LossFunction,
    LossInputs,
    Minibatch,
    Ranks,
    Transitions,
    UsageError,
    ValueInputs,
    ValueLossFunction,
)
from rlinf_torch.fit import require_fit
from rlinf_torch.policy import OwnWeights, choose_parameters
from rlinf_torch.trainer_config import TorchTrainerConfig
from rlinf_torch.training import ModelTrainer, Seen

WEIGHTS = "policy.safetensors"


@dataclass(frozen=True, slots=True)
class Batch:
    """n rows of a step on the device."""

    observations: Any
    sampled: Tensor
    logprobs: Tensor
    """[n, K]"""
    advantages: Tensor
    old_values: Tensor
    value_targets: Tensor
    weights: Tensor


class Columns:
    """A step's transitions as tensors in host memory."""

    def __init__(self, transitions: Transitions) -> None:
        self._observations = _each(transitions.observations, torch.from_numpy)
        self._sampled = torch.from_numpy(transitions.sampled)
        # side by side, so that the rows of a micro-batch are taken from all at once
        self._numbers = torch.from_numpy(np.column_stack([
            transitions.advantages, transitions.old_values, transitions.value_targets, transitions.logprobs]))

    def batch(self, rows: NDArray[np.int64], weights: NDArray[np.float32], device: torch.device) -> Batch:
        """Some rows, with the share of each in the loss."""
        index = torch.from_numpy(rows)
        numbers = self._numbers[index].to(device)
        advantages, old_values, value_targets = numbers[:, :3].unbind(1)
        return Batch(self.observations(rows, device), self._sampled[index].to(device), numbers[:, 3:], advantages, old_values,
                     value_targets, torch.from_numpy(weights).to(device))

    def observations(self, rows: NDArray[np.int64], device: torch.device) -> Any:
        index = torch.from_numpy(rows)
        return _each(self._observations, lambda column: column[index].to(device))


@dataclass(frozen=True, slots=True)
class Objective:
    """What an optimiser step brings down; see `PolicyTrainer.train_minibatch`."""

    loss: LossFunction
    value_loss: ValueLossFunction | None
    needs_entropy: bool
    value_coef: float

    def of(self, batch: Batch, evaluated: Evaluated) -> tuple[Tensor, Seen]:
        """Loss and tally of a micro-batch; parts of actions are laid end to end."""
        logprobs, entropy = evaluated.logprobs.float(), evaluated.entropy.float()
        parts = logprobs.shape[1]
        old, weights = batch.logprobs.flatten(), batch.weights
        advantages, owners = batch.advantages, torch.arange(len(logprobs), device=old.device)
        if parts > 1:
            weights = (weights / parts).repeat_interleave(parts)
            advantages, owners = advantages.repeat_interleave(parts), owners.repeat_interleave(parts)
        inputs = LossInputs(logprobs.flatten(), old, advantages, weights, owners, old,
                            entropy=entropy.flatten() if self.needs_entropy else None)
        total, metrics = self.loss(inputs)
        metrics = {"actor/loss": total.detach(), **metrics}
        if self.value_loss is not None:
            value, found = self.value_loss(ValueInputs(evaluated.values.float(), batch.old_values, batch.value_targets,
                                                       batch.weights))
            total, metrics = total + self.value_coef * value, {**metrics, "critic/loss": value.detach(), **found}
        diff = (inputs.logprobs.detach() - old).abs()
        return total, Seen(len(old), weights.sum(), metrics,
                           {"actor/entropy": entropy.detach().sum(), "actor/logp_diff_mean": diff.sum()},
                           {"actor/logp_diff_max": diff.max()})


class TorchPolicyTrainer(ModelTrainer):
    """Contract: `rlinf_cli.api.PolicyTrainer`."""

    role = "actor"

    def __init__(self, config: TorchTrainerConfig, policy: Any, device: str, ranks: Ranks, total_steps: int) -> None:
        require_whole(config)
        super().__init__(config, ModulePolicy(policy.eval()), device, ranks, total_steps)
        self._step: Columns | None = None

    def begin(self, transitions: Transitions, counted: NDArray[np.int64]) -> None:
        self._step, self._counted = Columns(transitions), counted

    def train_minibatch(self, minibatch: Minibatch, loss: LossFunction, value_loss: ValueLossFunction | None,
                        needs_entropy: bool = False, value_coef: float = 1.0) -> dict[str, float]:
        assert self._step is not None, "begin comes first"
        objective = Objective(loss, value_loss, needs_entropy, value_coef)
        self._accumulate((self._step.batch(rows, weights, self._device) for rows, weights in self._micro(minibatch)),
                         lambda batch: self._backward(batch, objective))
        return self.finish(1.0)

    def end(self) -> None:
        assert self._step is not None, "begin comes first"
        policy = self._policy.model
        parts = np.array_split(self._counted, max(1, -(-len(self._counted) // self._config.micro_batch_steps)))
        sums = added_tensors([policy.statistics(self._step.observations(rows, self._device)) for rows in parts])
        self._group.sum(list(sums.values()))
        policy.absorb(sums)
        self._step = None

    def _micro(self, minibatch: Minibatch) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Rows and weights of each micro-batch."""
        size = self._config.micro_batch_steps
        for start in range(0, len(minibatch.rows), size):
            yield minibatch.rows[start : start + size], minibatch.weights[start : start + size]

    def _backward(self, batch: Batch, objective: Objective) -> Seen:
        with self._arithmetic():
            evaluated: Evaluated = self._policy.model.evaluate(batch.observations, batch.sampled)
        loss, seen = objective.of(batch, evaluated)
        loss.backward()  # type: ignore[no-untyped-call]
        return seen


class ModulePolicy(OwnWeights):
    """See `rlinf_torch.policy.Policy`: all parameters of a module are trained, its buffers are kept with them."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, choose_parameters(module, 0))

    def save(self, directory: Path) -> None:
        save_file({name: tensor.contiguous() for name, tensor in self.named_weights()}, directory / WEIGHTS)

    def read(self, directory: Path) -> Mapping[str, Tensor]:
        if not (directory / WEIGHTS).is_file():
            raise ValueError(f"{directory} has no {WEIGHTS}: it is of a run that trained no environment's policy")
        weights = load_file(directory / WEIGHTS)
        require_fit(dict(self.named_weights()), weights, directory / WEIGHTS)
        return weights


def require_whole(config: TorchTrainerConfig) -> None:
    """Raises UsageError where a part of the policy is to be trained."""
    for name in "lora_rank", "train_layers":
        if getattr(config, name):
            raise UsageError(f"trainer.{name} is {getattr(config, name)}, but an environment's policy is trained whole: leave it "
                             "out")


def added_tensors(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Sums by name."""
    return {name: torch.stack([row[name] for row in rows]).sum(0) for name in rows[0]}


def _each(observations: Any, change: Callable[[Any], Tensor]) -> Any:
    if isinstance(observations, Mapping):
        return {name: change(array) for name, array in observations.items()}
    return change(observations)

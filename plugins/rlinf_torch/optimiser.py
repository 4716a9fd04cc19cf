"""AdamW with a learning-rate schedule, gradient clipping and a state of named tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from rlinf_torch.trainer_config import TorchTrainerConfig

MOMENTS = ("exp_avg", "exp_avg_sq")
ROUNDING = 1e-6
"""Added to the norm that gradients are divided by."""


def learning_rate(config: TorchTrainerConfig, step: int, total_steps: int) -> float:
    """Learning rate of optimiser step `step` (0 is the first) of `total_steps`."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    done = min(1.0, (step - config.warmup_steps) / max(1, total_steps - config.warmup_steps))
    if config.schedule == "linear":
        return config.lr * (1 - done)
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * done)) / 2
    return config.lr


class Optimiser:
    """Steps the named parameters. `steps` counts the optimiser steps taken."""

    def __init__(self, parameters: Mapping[str, Parameter], config: TorchTrainerConfig, total_steps: int) -> None:
        self._parameters, self._config, self._total_steps = parameters, config, total_steps
        # norms and biases are the parameters with one dimension
        decayed = [p for p in parameters.values() if p.ndim > 1 or not config.weight_decay]
        groups = [{"params": decayed, "weight_decay": config.weight_decay},
                  {"params": [p for p in parameters.values() if p.ndim <= 1 and config.weight_decay], "weight_decay": 0.0}]
        self._adam = torch.optim.AdamW([group for group in groups if group["params"]], lr=config.lr,
                                       betas=config.betas, fused=True)
        self.steps = 0

    def gradient_norm(self) -> Tensor:
        """Global L2 norm of the gradients, before clipping."""
        norm: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(self._gradients())))
        return norm

    def step(self, norm: Tensor) -> float:
        """Clip the gradients, whose norm is given, take a step and forget them; the learning rate used."""
        torch._foreach_mul_(self._gradients(), (self._config.max_grad_norm / (norm + ROUNDING)).clamp(max=1.0))
        rate = learning_rate(self._config, self.steps, self._total_steps)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad()
        self.steps += 1
        return rate

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._parameters.values() if p.grad is not None]

    def skip(self) -> None:
        """Forget the gradients without a step."""
        self._adam.zero_grad()

    def state(self) -> dict[str, Tensor]:
        """AdamW's moments by parameter name; empty before the first step."""
        return {f"{name}.{moment}": self._adam.state[parameter][moment]
                for name, parameter in self._parameters.items() if parameter in self._adam.state
                for moment in MOMENTS}

    def expected(self, steps: int) -> dict[str, Tensor]:
        """Tensors shaped as `state()` after a number of steps."""
        return {f"{name}.{moment}": parameter.data for name, parameter in self._parameters.items()
                for moment in MOMENTS} if steps else {}

    def restore(self, state: Mapping[str, Tensor], steps: int) -> None:
        """Take up what `state` returned after `steps` steps."""
        self._adam.state.clear()
        for name, parameter in self._parameters.items() if steps else ():
            moments = {moment: state[f"{name}.{moment}"].to(parameter.device) for moment in MOMENTS}
            self._adam.state[parameter] = {"step": torch.tensor(float(steps), device=parameter.device), **moments}
        self.steps = steps

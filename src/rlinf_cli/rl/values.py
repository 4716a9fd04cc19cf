"""What a critic learns, and how well: clipped value loss, running moments of returns, explained variance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

LEAST_SPREAD = 1e-3
"""Standard deviation that values are divided by, at least: returns that hardly differ are not blown up."""


def clipped_value_loss(values: Tensor, old_values: Tensor, targets: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """`max((V - R)^2, (V_clipped - R)^2) / 2` with V_clipped = V_old + clamp(V - V_old, -clip, clip), and where the second is
    the larger, which has no gradient: float32 [N], differentiable, and bool [N]. All arguments float32 [N]; `clip` 0: plain
    squares.

    Source: the reference implementation of PPO (OpenAI baselines, ppo2); the paper (arXiv 1707.06347) has plain squares.
    """
    free = (values - targets).square() / 2
    if not clip:
        return free, torch.zeros_like(free, dtype=torch.bool)
    bounded = (old_values + (values - old_values).clamp(-clip, clip) - targets).square() / 2
    return torch.maximum(free, bounded), bounded > free


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """`1 - var(returns - values) / var(returns)`: 1 for a critic that is right, 0 for one no better than a constant, less for
    a worse one. 0 where all returns are equal, so that there is nothing to explain. Both [N]."""
    known = returns.double()
    spread = known.var(correction=0).item() if len(known) else 0.0
    if spread < torch.finfo(torch.float32).eps ** 2:
        return 0.0
    return 1 - (known - values.double()).var(correction=0).item() / spread


@dataclass(frozen=True)
class RunningMoments:
    """Mean and variance of all numbers seen so far, later ones counting more: a critic learns returns in units of these.

    `weight`: how many numbers they are worth. Before the first, values stay as they are.
    """

    weight: float = 0.0
    mean: float = 0.0
    variance: float = 1.0

    def updated(self, values: Tensor, decay: float = 1.0) -> RunningMoments:
        """With further numbers, [N]; what was known before then counts `decay` times. Merging means and variances: Chan et al.
        (1979), "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances"."""
        if not len(values):
            return self
        count, new = float(len(values)), values.double()
        before = decay * self.weight
        total, gap = before + count, new.mean().item() - self.mean
        spread = (before * self.variance + count * new.var(correction=0).item()) / total
        return RunningMoments(total, self.mean + gap * count / total, spread + gap * gap * before * count / total**2)

    @property
    def spread(self) -> float:
        """The standard deviation, at least LEAST_SPREAD."""
        return max(LEAST_SPREAD, math.sqrt(self.variance))

    def normalize(self, values: Tensor) -> Tensor:
        """In units of the moments, float32 of the same shape."""
        return ((values.double() - self.mean) / self.spread).float()

    def denormalize(self, values: Tensor) -> Tensor:
        """The inverse of `normalize`."""
        return (values.double() * self.spread + self.mean).float()

    def to_dict(self) -> dict[str, float]:
        """For a checkpoint."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, float]) -> RunningMoments:
        """What `to_dict` gave."""
        return cls(**document)

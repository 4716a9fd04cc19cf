"""Advantages from the rewards of a whole step."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-4
"""Added to a group's standard deviation: keeps the advantage finite when rewards hardly differ."""


def group_advantages(rewards: Tensor, groups: Tensor, normalize_std: bool = True) -> Tensor:
    """Each reward relative to its group: `(r - mean) / (std + EPSILON)`, or `r - mean` without the division.

    `rewards` float32 [B], `groups` int64 [B] numbered from 0; returns float32 [B]. `std` is the sample's (n - 1).
    Exactly 0 where all rewards of a group are equal, and so for a group of one.
    """
    values = rewards.double()
    size = torch.bincount(groups).double()
    deviation = values - (_group_sum(values, groups) / size)[groups]
    if normalize_std:
        variance = _group_sum(deviation.square(), groups) / (size - 1).clamp(min=1)
        deviation = deviation / (variance.sqrt() + EPSILON)[groups]
    # rounding of the mean would leave a trace (1e-17 / 1e-4) where nothing can be learned
    return deviation.masked_fill(~_varied(values, groups)[groups], 0.0).float()


def _group_sum(values: Tensor, groups: Tensor) -> Tensor:
    return torch.bincount(groups, weights=values)


def _varied(values: Tensor, groups: Tensor) -> Tensor:
    """Whether a group holds two different values, bool [G]."""
    empty = values.new_zeros(int(groups.max()) + 1 if len(groups) else 0)
    low = empty.scatter_reduce(0, groups, values, "amin", include_self=False)
    high = empty.scatter_reduce(0, groups, values, "amax", include_self=False)
    return low != high

"""Advantages from the rewards of a whole step. Sums are taken in float64."""

from __future__ import annotations

import torch
from torch import Tensor

EPSILON = 1e-4
"""Added to a standard deviation: keeps the advantage finite when rewards hardly differ."""


def group_advantages(rewards: Tensor, groups: Tensor, normalize_std: bool = True, leave_one_out: bool = False) -> Tensor:
    """Each reward relative to its group: `(r - baseline) / (std + EPSILON)`, or `r - baseline` without the division.

    `rewards` [B], `groups` int64 [B] numbered from 0; returns float32 [B]. The baseline is the mean of the group, with
    `leave_one_out` that of its other samples; `std` is the sample's (n - 1). Exactly 0 where all rewards of a group are
    equal, and so for a group of one.
    """
    values = rewards.double()
    size = torch.bincount(groups).double()
    deviation = values - (_group_sum(values, groups) / size)[groups]
    scale = torch.ones_like(size)
    if leave_one_out:
        scale = size / (size - 1).clamp(min=1)  # r - mean(others) = (r - mean) * n / (n - 1)
    if normalize_std:
        variance = _group_sum(deviation.square(), groups) / (size - 1).clamp(min=1)
        scale = scale / (variance.sqrt() + EPSILON)
    # rounding of the mean would leave a trace (1e-17 / 1e-4) where nothing can be learned
    return (deviation * scale[groups]).masked_fill(~differing(rewards, groups), 0.0).float()


def differing(rewards: Tensor, groups: Tensor) -> Tensor:
    """Whether the group of a sample holds two different rewards, bool [B]. Groups are numbered from 0; a number may be
    missing."""
    values = rewards.double()
    empty = values.new_zeros(int(groups.max()) + 1 if len(groups) else 0)
    low = empty.scatter_reduce(0, groups, values, "amin", include_self=False)
    high = empty.scatter_reduce(0, groups, values, "amax", include_self=False)
    return (low != high)[groups]


def standardized(values: Tensor) -> Tensor:
    """`(v - mean) / (std + EPSILON)` over all N values, float32 [N]; std is the population's. Exactly 0 where all are
    equal."""
    wide = values.double()
    deviation = wide - wide.mean()
    scaled = deviation / (deviation.square().mean().sqrt() + EPSILON)
    return scaled.masked_fill((values == values[:1]).all(), 0.0).float()


def sample_sums(values: Tensor, lengths: Tensor) -> Tensor:
    """Sum over the tokens of each sample: `values` [N] lie sample by sample, `lengths` int64 [B]; float64 [B]."""
    owner = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    return torch.zeros_like(lengths, dtype=torch.float64).index_add(0, owner, values.double())


def sums_to_go(values: Tensor, lengths: Tensor) -> Tensor:
    """For each token, the sum of its value and of those after it in its sample: `values` [N], `lengths` int64 [B];
    float64 [N]. With rewards as values: the undiscounted return."""
    so_far = values.double().cumsum(0)
    until_end = sample_sums(values, lengths).cumsum(0).repeat_interleave(lengths)
    return until_end - so_far + values.double()


def _group_sum(values: Tensor, groups: Tensor) -> Tensor:
    return torch.bincount(groups, weights=values)

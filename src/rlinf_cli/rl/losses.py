"""Token losses of policy-gradient methods, before they are averaged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LOG_LIMIT = 20.0
"""Log-weights are held within this (nats), so that the product over a long sequence stays a number."""


@dataclass(frozen=True)
class Surrogate:
    """The clipped surrogate of N tokens."""

    losses: Tensor
    """float32 [N], differentiable."""
    ratio: Tensor
    """float32 [N], detached: probability of the token now over that when it was sampled; where it is taken of sequences,
    that of the token's sequence."""
    clipped: Tensor
    """bool [N]: the clip holds the token, which has no gradient."""
    clipped_low: Tensor
    """bool [N]: of these, held by the lower bound (an advantage below 0)."""
    clipped_high: Tensor
    """bool [N]: of these, held by the upper bound (an advantage above 0)."""


def clipped_surrogate(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float,
                      dual_clip: float | None = None, samples: Tensor | None = None) -> Surrogate:
    """`-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)`, all float32 [N] (PPO, arXiv 1707.06347).

    `dual_clip` (> 1) also bounds the loss of a token with negative advantage by `-dual_clip * A`, however large its
    ratio has become (arXiv 1912.09729). With `samples`, int64 [N], the sequence that each token belongs to, the ratio is
    the geometric mean over that sequence's tokens, and clipped for all of them at once (GSPO, arXiv 2507.18071).
    """
    log_ratio = logprobs - old_logprobs
    ratio = torch.exp(log_ratio if samples is None else _sequence_means(log_ratio, samples))
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    held = bounded > free
    losses, clipped = torch.maximum(free, bounded), held
    if dual_clip is not None:
        ceiling = torch.where(advantages < 0, -dual_clip * advantages, torch.inf)
        losses, clipped = torch.minimum(losses, ceiling), held | (losses > ceiling)
    return Surrogate(losses, ratio.detach(), clipped, held & (advantages < 0), held & (advantages > 0))


@dataclass(frozen=True)
class Correction:
    """What N tokens count in place of 1, since another distribution drew them; all detached."""

    weights: Tensor
    """float32 [N]: to multiply losses with."""
    ratio: Tensor
    """float32 [N]: the importance weights as they are, within e^-20 and e^20."""
    beyond: Tensor
    """bool [N]: the weight was too large, or (`mask`) too small as well, and was brought down, or set to 0."""


def importance_weights(old_logprobs: Tensor, sampled_logprobs: Tensor, cap: float, mode: str = "truncate",
                       samples: Tensor | None = None) -> Correction:
    """`exp(old - sampled)` kept in bounds, all float32 [N]: samples of one distribution, weighed as those of another.

    `truncate`: `min(weight, cap)`. `mask`: 0 where the weight is over `cap` or under 1 / `cap`. With `samples`, int64 [N],
    the sequence that each token belongs to, a token's weight is the product of those of its sequence.
    """
    log_ratio = (old_logprobs - sampled_logprobs).detach()
    if samples is not None:
        log_ratio = _sequence_sums(log_ratio, samples)[samples]
    ratio = log_ratio.clamp(-LOG_LIMIT, LOG_LIMIT).exp()
    if mode == "mask":
        beyond = (ratio > cap) | (ratio < 1 / cap)
        return Correction(ratio.masked_fill(beyond, 0.0), ratio, beyond)
    return Correction(ratio.clamp(max=cap), ratio, ratio > cap)


def _sequence_means(values: Tensor, samples: Tensor) -> Tensor:
    """Of each token, the mean over its sequence, [N]."""
    return (_sequence_sums(values, samples) / torch.bincount(samples).clamp(min=1))[samples]


def _sequence_sums(values: Tensor, samples: Tensor) -> Tensor:
    count = int(samples.max()) + 1 if len(samples) else 0
    return values.new_zeros(count).index_add(0, samples, values)

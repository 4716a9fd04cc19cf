"""Token losses of policy-gradient methods, before they are averaged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Surrogate:
    """The clipped surrogate of N tokens."""

    losses: Tensor
    """float32 [N], differentiable."""
    ratio: Tensor
    """float32 [N], detached: probability of the token now over that when it was sampled."""
    clipped: Tensor
    """bool [N]: the clip holds the token, which has no gradient."""


def clipped_surrogate(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, clip_low: float, clip_high: float,
                      dual_clip: float | None = None) -> Surrogate:
    """`-min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)`, all float32 [N] (PPO, arXiv 1707.06347).

    `dual_clip` (> 1) also bounds the loss of a token with negative advantage by `-dual_clip * A`, however large its
    ratio has become (arXiv 1912.09729).
    """
    ratio = torch.exp(logprobs - old_logprobs)
    free = -ratio * advantages
    bounded = -ratio.clamp(1 - clip_low, 1 + clip_high) * advantages
    losses, clipped = torch.maximum(free, bounded), bounded > free
    if dual_clip is not None:
        ceiling = torch.where(advantages < 0, -dual_clip * advantages, torch.inf)
        losses, clipped = torch.minimum(losses, ceiling), clipped | (losses > ceiling)
    return Surrogate(losses, ratio.detach(), clipped)

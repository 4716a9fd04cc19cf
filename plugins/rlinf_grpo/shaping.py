"""Which samples are trained, and what their length costs them (DAPO, arXiv 2503.14476, sections 3.2 and 3.4).

Dynamic sampling: a prompt is trained only if its samples do not all have the same reward. Soft overlong punishment, for
a response of n tokens, at most L, and a buffer of b tokens, added to its reward times `overlong_penalty`:

    0 where n <= L - b,   ((L - b) - n) / b up to n = L,   -1 there

Overlong filtering: a response that was cut at L is not trained.

Deviations: the buffer is a share of L (the paper's 4096 of 20480: 0.2), so that one setting serves any length. The paper
samples until the step is full; here at most `rounds` times, after which what there is is trained. Its test, right or
wrong, becomes: rewards as they came differ, before any punishment. What is filtered counts in no baseline either.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf_cli.api import Returns, differing
from rlinf_grpo.config import GRPOConfig


def chosen(returns: Returns, config: GRPOConfig) -> Tensor:
    """Which samples take part, bool [B]."""
    kept = ~returns.truncated if config.overlong_filter else torch.ones_like(returns.truncated)
    if config.drops_equal:
        kept[kept.clone()] = differing(returns.rewards[kept], returns.groups[kept])
    return kept


def overlong_punishment(lengths: Tensor, longest: int, share: float) -> Tensor:
    """Between -1 and 0, float64 [B]; `lengths` int64 [B] in tokens, `share` (> 0) of `longest` is the buffer."""
    buffer = share * longest
    return ((longest - buffer - lengths.double()) / buffer).clamp(-1, 0)

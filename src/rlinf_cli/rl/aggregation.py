"""How the losses of tokens become the loss of an optimiser step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlinf_cli.rl.trajectory import BoolArray, FloatArray

MODES = ("token-mean", "sequence-mean", "sequence-sum")
"""`token-mean`: every trained token counts the same. `sequence-mean`: every sample counts the same, each the mean of
its tokens. `sequence-sum`: every token counts 1 / (samples * longest response allowed), whatever the lengths."""


def token_weights(masks: Sequence[BoolArray], mode: str, max_tokens: int) -> list[FloatArray]:
    """Share of each response token in the loss of a whole optimiser step: `loss = sum(weights * token_losses)`.

    `masks`: the samples of the step over all ranks, True where a token is trained; `max_tokens`: the longest response
    allowed (for `sequence-sum`). Returns one float32 array a sample, as long as its mask, 0 where that is off. A sample
    without a trained token does not count. The shares are set before the step is split, so the loss does not depend on
    the split.
    """
    total = share_count(masks, mode)
    return [_weights(mask, mode, max_tokens, total) for mask in masks]


def token_shares(masks: Sequence[BoolArray], mode: str, max_tokens: int) -> list[FloatArray]:
    """`token_weights` of a step that is not complete yet, times what they will be divided by: the sum of `share_count`
    over the parts of the step."""
    return [_weights(mask, mode, max_tokens, 1) for mask in masks]


def share_count(masks: Sequence[BoolArray], mode: str) -> int:
    """What the mean of a step is over: its trained tokens, or its samples that have one."""
    lengths = [int(np.count_nonzero(mask)) for mask in masks]
    return sum(lengths) if mode == "token-mean" else sum(length > 0 for length in lengths)


def _weights(mask: BoolArray, mode: str, max_tokens: int, total: int) -> FloatArray:
    divisor = total * _divisor(int(np.count_nonzero(mask)), mode, max_tokens)
    weights: FloatArray = mask * np.float32(1 / max(1, divisor))
    return weights


def _divisor(length: int, mode: str, max_tokens: int) -> int:
    """By what the sum over a sample's token losses is divided, besides by the count of what the mean is over."""
    divisors = {"token-mean": 1, "sequence-mean": length, "sequence-sum": max_tokens}
    if mode not in divisors:
        raise ValueError(f"aggregation {mode!r} is none of {', '.join(MODES)}")
    return divisors[mode]

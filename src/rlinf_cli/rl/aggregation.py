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
    lengths = [int(np.count_nonzero(mask)) for mask in masks]
    divisors = _divisors(lengths, mode, max_tokens)
    return [mask * np.float32(1 / max(1, divisor)) for mask, divisor in zip(masks, divisors, strict=True)]


def _divisors(lengths: Sequence[int], mode: str, max_tokens: int) -> list[int]:
    """By what the token losses of each sample are divided."""
    samples = sum(length > 0 for length in lengths)
    if mode == "token-mean":
        return [sum(lengths)] * len(lengths)
    if mode == "sequence-mean":
        return [samples * length for length in lengths]
    if mode == "sequence-sum":
        return [samples * max_tokens] * len(lengths)
    raise ValueError(f"aggregation {mode!r} is none of {', '.join(MODES)}")

"""How samples are laid into micro-batches and dealt to ranks. Pure, and the same at every call."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

PADDING_SHARE = 16
"""Of a micro-batch's budget, one part in so many may be padding: a full one then holds 94 % real tokens."""


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Split samples into micro-batches of at most `budget` tokens, padding included, a sixteenth of it padding.

    `lengths` in tokens; returns indices, longest first, so that samples of like length share a micro-batch and the
    largest comes first. A sample longer than the budget has a micro-batch of its own.
    """
    batches: list[list[int]] = []
    longest = padding = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        padding += longest - lengths[index]
        if batches and longest * (len(batches[-1]) + 1) <= budget and padding <= budget / PADDING_SHARE:
            batches[-1].append(index)
        else:
            batches.append([index])
            longest, padding = lengths[index], 0
    return batches


def partition(lengths: Sequence[int], ranks: int, before: Sequence[int] = ()) -> list[list[int]]:
    """Deal samples to ranks so that each has about as many tokens: the longest first, to the rank with the fewest.

    Returns ascending indices a rank; a rank has none when there are fewer samples than ranks. The largest rank has at
    most 4/3 of the tokens of the best possible split (Graham 1969). `before`: tokens that each rank has already.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    loads = [(tokens, 0, rank) for rank, tokens in enumerate(before or [0] * ranks)]
    heapq.heapify(loads)
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        tokens, count, rank = loads[0]
        shares[rank].append(index)
        heapq.heapreplace(loads, (tokens + lengths[index], count + 1, rank))
    return [sorted(share) for share in shares]

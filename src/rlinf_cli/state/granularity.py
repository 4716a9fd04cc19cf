"""How many items a role takes from its channel at once: so few that it begins early and leaves work for others, so many
that what a chunk costs however small it is does not matter. Pure: chunks that were done in, what to take next out.

A chunk of n items costs a + b n seconds. The smallest n is wanted with which a is at most a tenth of that, or with which the
role keeps up with items that come one every t seconds, idle for a tenth of its time: a + b n <= 0.9 t n.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

OVERHEAD = 0.1
"""Share of a chunk's time that may be what it costs however small it is."""
BUSY = 0.9
"""Share of its time that a role may have to work to keep up."""
WINDOW = 24
"""Chunks that are remembered, the latest."""
ALIKE = 3
"""After so many chunks of one size, which say nothing about others, another one is tried."""


@dataclass(frozen=True)
class Bounds:
    """Event: a chunk is never smaller than `low` items, which what they mean decides, nor larger than `high`."""

    low: int
    high: int


@dataclass(frozen=True)
class ChunkDone:
    """Event: so many items took so long."""

    items: int
    seconds: float
    idle: float = 0.0
    """Seconds that the consumer had waited for them."""
    waiting: int = 0
    """Others in the channel, which matters where several consumers share them."""


@dataclass(frozen=True)
class Take:
    """Instruction: up to `at_most` items next, once there are `at_least`."""

    at_most: int
    at_least: int


class Granularity:
    """Of one consumer of a channel, among `sharers` that take from it."""

    def __init__(self, low: int, high: int, sharers: int = 1) -> None:
        self._bounds, self.sharers = Bounds(low, high), sharers
        self._done: deque[ChunkDone] = deque(maxlen=WINDOW)
        self._least, self._waiting = low, 0

    @property
    def take(self) -> Take:
        """What to take next."""
        # half of one's share of what waits: what is left evens out differences between the consumers
        share = self._bounds.high if self.sharers == 1 else self._waiting // (2 * self.sharers)
        return Take(min(max(share, self._least), self._bounds.high), self._least)

    def handle(self, event: ChunkDone | Bounds) -> Take:
        """What to take next."""
        if isinstance(event, Bounds):
            self._bounds = event
            self._least = self._within(self._least)
        else:
            self._done.append(event)
            self._waiting = event.waiting
            # at most to the double or the half: one odd measurement does not decide
            self._least = self._within(min(max(self._wanted(), -(-self._least // 2)), 2 * self._least))
        return self.take

    def _wanted(self) -> int:
        cost = affine_cost([(chunk.items, chunk.seconds) for chunk in self._done])
        if cost is not None:
            return smallest(*cost, self._interval(), most=self._bounds.high)
        return 2 * self._done[-1].items if len(self._done) >= ALIKE else self._least

    def _interval(self) -> float:
        """Seconds from an item to the next, as they have come; 0 where there was always one."""
        if not any(chunk.idle for chunk in self._done):
            return 0.0
        return sum(chunk.seconds + chunk.idle for chunk in self._done) / sum(chunk.items for chunk in self._done)

    def _within(self, count: int) -> int:
        return min(max(count, self._bounds.low), self._bounds.high)


def affine_cost(done: Sequence[tuple[int, float]]) -> tuple[float, float] | None:
    """(a, b) of seconds = a + b * items, both 0 or more, by the medians of Theil (1950) and Sen (1968), which single slow
    chunks do not move; None where all chunks have one size."""
    slopes = [(late[1] - early[1]) / (late[0] - early[0]) for early, late in combinations(done, 2) if late[0] != early[0]]
    if not slopes:
        return None
    each = max(0.0, median(slopes))
    return max(0.0, median(seconds - each * items for items, seconds in done)), each


def smallest(fixed: float, each: float, interval: float, most: int) -> int:
    """The smallest chunk whose fixed cost is at most `OVERHEAD` of its time, or with which a consumer is at most `BUSY`
    where an item comes every `interval` seconds (0: they are there); `most` where none below is."""
    # for each item, seconds of work that outweigh the fixed cost, or seconds in which it can be paid
    gain = max(each * OVERHEAD / (1 - OVERHEAD), BUSY * interval - each)
    if fixed == 0:
        return 1
    # the last digits of a quotient are rounding
    return most if fixed >= most * gain else max(1, math.ceil(fixed / gain - 1e-6))

"""Which rows each step trains on: a pure function of seed and step, so that a resume continues where it stopped.

An epoch is one pass over the rows. A step takes the next `per_step` places of the endless sequence of epochs, across
the end of an epoch where it must: within an epoch no row is dropped and none comes twice.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf_cli.data.rows import Dataset, Row


@dataclass(frozen=True, slots=True)
class StreamItem:
    """A row and the id that it has in this pass over the data."""

    id: str
    """`EPOCH-ROW`, both counted from 0; `0-INDEX` for a generator."""
    row: Row


class PromptStream:
    """The rows of each step, in any order of asking.

    A shuffled epoch begins with rows that its first step does not already hold from the epoch before: a row comes
    twice in a step only when `per_step` exceeds the number of rows (the two then differ in their id's epoch).
    """

    def __init__(self, dataset: Dataset, per_step: int, seed: int, shuffle: bool) -> None:
        self.dataset, self.per_step, self.seed = dataset, per_step, seed
        self.shuffle = shuffle and dataset.size is not None
        self._latest: tuple[int, Sequence[int]] = (-1, ())

    def batch(self, step: int) -> list[StreamItem]:
        """The `per_step` items of step number `step`, counted from 0."""
        return [StreamItem(f"{epoch}-{index}", self.dataset.row(index)) for epoch, index in self.places(step)]

    def places(self, step: int) -> list[tuple[int, int]]:
        """Epoch and row number of each item of step number `step`."""
        first, size = step * self.per_step, self.dataset.size
        if size is None:
            return [(0, first + i) for i in range(self.per_step)]
        return [(place // size, self._order(place // size)[place % size])
                for place in range(first, first + self.per_step)]

    def epoch(self, step: int) -> float:
        """Passes over the data made before step number `step`; 0 for a generator."""
        return step * self.per_step / self.dataset.size if self.dataset.size else 0.0

    def _order(self, epoch: int) -> Sequence[int]:
        if self._latest[0] != epoch:
            self._latest = (epoch, self._compute(epoch))
        return self._latest[1]

    def _compute(self, epoch: int) -> Sequence[int]:
        assert self.dataset.size is not None
        size, (computed, latest) = self.dataset.size, self._latest
        if not self.shuffle:
            return range(size)
        if computed == epoch - 1:
            return self._after(latest, epoch, size)
        first = self._independent(epoch, size)
        order = shuffled(size, self.seed, first)
        for number in range(first + 1, epoch + 1):
            order = self._after(order, number, size)
        return order

    def _independent(self, epoch: int, size: int) -> int:
        """An epoch before `epoch` (or itself) whose last places do not depend on the epochs before it."""
        if size >= 2 * self.per_step:  # only the first per_step places depend on the epoch before
            return max(0, epoch - 1)
        while epoch * size % self.per_step:
            epoch -= 1
        return epoch

    def _after(self, previous: Sequence[int], epoch: int, size: int) -> list[int]:
        """The order of `epoch`: shuffled, its first step's share free of the rows the step has from `previous`."""
        order = shuffled(size, self.seed, epoch)
        held = epoch * size % self.per_step
        if not held:
            return order
        taken = set(previous[-held:])
        head = [index for index in order if index not in taken][: self.per_step - held]
        chosen = set(head)
        return head + [index for index in order if index not in chosen]


def shuffled(size: int, seed: int, epoch: int) -> list[int]:
    """The numbers below `size` in an order that depends on nothing but the arguments (no library's generator).

    Sorted by 64-bit keys from SHAKE-128; 0.1 s for 100 000 numbers.
    """
    keys = struct.unpack(f"<{size}Q", hashlib.shake_128(f"order {seed} {epoch}".encode()).digest(8 * size))
    return sorted(range(size), key=keys.__getitem__)

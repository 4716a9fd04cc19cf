"""The order of a source's rows: epochs, each a pass over all of them, each in an order of its own."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence

Span = tuple[int, int]
"""First place and the place after the last."""


class RowOrder:
    """From the number of a place to (epoch, row): a pure function of the arguments.

    `batch_of` gives the places that share a batch with a place, at most `per_batch`. An epoch begins with rows that its first
    batch does not already hold from the epoch before: a row comes twice in a batch only when the batch takes more rows of
    this source than there are.
    """

    def __init__(self, size: int, seed: str, per_batch: int, batch_of: Callable[[int], Span]) -> None:
        self._size, self._seed, self._per_batch, self._batch_of = size, seed, per_batch, batch_of
        self._latest: tuple[int, Sequence[int]] = (-1, ())

    def __call__(self, place: int) -> tuple[int, int]:
        epoch, position = divmod(place, self._size)
        if self._latest[0] != epoch:
            self._latest = (epoch, self._compute(epoch))
        return epoch, self._latest[1][position]

    def _compute(self, epoch: int) -> Sequence[int]:
        computed, latest = self._latest
        if computed == epoch - 1:
            return self._after(latest, epoch)
        first = self._independent(epoch)
        order = shuffled(self._size, self._seed, first)
        for number in range(first + 1, epoch + 1):
            order = self._after(order, number)
        return order

    def _independent(self, epoch: int) -> int:
        """An epoch before `epoch` (or itself) whose last places do not depend on the epochs before it."""
        if self._size >= 2 * self._per_batch:  # only the first per_batch places depend on the epoch before
            return max(0, epoch - 1)
        while self._held(epoch):
            epoch -= 1
        return epoch

    def _held(self, epoch: int) -> int:
        """Places of the epoch before in the batch in which an epoch begins."""
        start = epoch * self._size
        return start - self._batch_of(start)[0]

    def _after(self, previous: Sequence[int], epoch: int) -> list[int]:
        """The order of `epoch`: shuffled, its first batch's share free of the rows the batch has from `previous`."""
        order = shuffled(self._size, self._seed, epoch)
        held = self._held(epoch)
        if not held:
            return order
        taken, share = set(previous[-held:]), self._batch_of(epoch * self._size)[1] - epoch * self._size
        head = [index for index in order if index not in taken][:share]
        chosen = set(head)
        return head + [index for index in order if index not in chosen]


def shuffled(size: int, seed: str, epoch: int) -> list[int]:
    """The numbers below `size` in an order that depends on nothing but the arguments (no library's generator).

    Sorted by 64-bit keys from SHAKE-128; 0.1 s for 100 000 numbers.
    """
    keys = struct.unpack(f"<{size}Q", hashlib.shake_128(f"order {seed} {epoch}".encode()).digest(8 * size))
    return sorted(range(size), key=keys.__getitem__)

"""Random choices that are a pure function of what they are for: the same on every platform and Python."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """The choices for one row: `Draw("arithmetic", seed, index)` makes the same ones each time."""

    def __init__(self, task: str, seed: int, index: int) -> None:
        self._key = f"{task} {seed} {index}"
        self._drawn = 0

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        digest = hashlib.blake2b(f"{self._key} {self._drawn}".encode(), digest_size=16).digest()
        self._drawn += 1
        return low + int.from_bytes(digest, "little") % (high - low + 1)

    def choice(self, options: Sequence[T]) -> T:
        return options[self.between(0, len(options) - 1)]

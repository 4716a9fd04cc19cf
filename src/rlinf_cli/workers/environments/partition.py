"""Which environments a rank steps, and which rank of the policy answers them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Partition:
    """`count` environments in `halves`, stepped by `simulating` ranks, each a block of them, and answered by `acting` ranks. Each
    half holds an equal part of every block; its environments, block by block, are shared out among the acting ranks in turn."""

    count: int
    halves: int
    simulating: int
    acting: int

    @property
    def stepped(self) -> int:
        """Environments of a half on one simulating rank."""
        return self.count // (self.halves * self.simulating)

    @property
    def answered(self) -> int:
        """Environments of a half on one acting rank."""
        return self.count // (self.halves * self.acting)

    def actors_of(self, simulating: int) -> dict[int, slice]:
        """Acting rank -> the rows of each half on this simulating rank that it answers."""
        return {acting: slice(low - simulating * self.stepped, high - simulating * self.stepped)
                for acting in range(self.acting) for low, high in self._shared(simulating, acting)}

    def simulators_of(self, acting: int) -> dict[int, slice]:
        """Simulating rank -> the rows of each half on this acting rank that it steps."""
        return {simulating: slice(low - acting * self.answered, high - acting * self.answered)
                for simulating in range(self.simulating) for low, high in self._shared(simulating, acting)}

    def environments(self, acting: int, half: int) -> NDArray[np.int64]:
        """Numbers of the environments of a half that an acting rank answers."""
        places = np.arange(acting * self.answered, (acting + 1) * self.answered)
        block, row = np.divmod(places, self.stepped)
        return block * self.stepped * self.halves + half * self.stepped + row

    def _shared(self, simulating: int, acting: int) -> Iterator[tuple[int, int]]:
        low = max(simulating * self.stepped, acting * self.answered)
        high = min((simulating + 1) * self.stepped, (acting + 1) * self.answered)
        if low < high:
            yield low, high

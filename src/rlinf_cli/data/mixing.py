"""Which source each row of a mixture comes from, by weight.

After any number n of rows, the rows taken from source i differ from n * share(i) by less than 1 - 1/(2K - 2), K sources:
the chairman assignment of R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980). Among the
sources that are behind by at least 1/(2K - 2), the one whose next row is due first is taken. Shares are fractions, so
the choice repeats itself after their common denominator.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from math import lcm


class Mixture:
    """A pure function of the weights: from the place in the stream to a source and the place in that source's rows."""

    def __init__(self, weights: Sequence[float]) -> None:
        exact = [Fraction(str(weight)) for weight in weights]
        shares = [weight / sum(exact) for weight in exact]
        self.period = lcm(*(share.denominator for share in shares))
        self.counts = [int(share * self.period) for share in shares]
        """Rows of each source in a period."""
        self._slack = 2 * len(weights) - 2
        self._picks: list[int] = []
        self._places: list[list[int]] = [[] for _ in weights]
        """Of each source, the places in the period that are its own."""

    def pick(self, place: int) -> tuple[int, int]:
        """The source of a place, and the number of the source's own place."""
        cycle, offset = divmod(place, self.period)
        self._extend(offset + 1)
        source = self._picks[offset]
        return source, cycle * self.counts[source] + bisect_left(self._places[source], offset)

    def before(self, source: int, place: int) -> int:
        """Rows taken from a source before a place."""
        cycle, offset = divmod(place, self.period)
        self._extend(offset)
        return cycle * self.counts[source] + bisect_left(self._places[source], offset)

    def place(self, source: int, own: int) -> int:
        """The place in the stream of a source's own place."""
        cycle, number = divmod(own, self.counts[source])
        while len(self._places[source]) <= number:
            self._extend(len(self._picks) + 1)
        return cycle * self.period + self._places[source][number]

    def _extend(self, length: int) -> None:
        for offset in range(len(self._picks), length):
            source = self._next(offset + 1)
            self._picks.append(source)
            self._places[source].append(offset)

    def _next(self, length: int) -> int:
        """The source that the last of `length` places goes to."""
        if len(self.counts) == 1:
            return 0
        behind = [i for i, count in enumerate(self.counts)
                  if (length * count - len(self._places[i]) * self.period) * self._slack >= self.period]
        return min(behind, key=lambda i: (self._due(i), i))

    def _due(self, source: int) -> Fraction:
        """After how many rows the source would be too far behind."""
        return Fraction((len(self._places[source]) + 1) * self._slack - 1, self.counts[source])

"""Which rows each batch holds: a pure function of seed and number, so that a resume continues where it stopped.

A batch takes the next `per_batch` places of an endless stream. Each place belongs to one of the sources, by weight; each
source gives its rows epoch after epoch, across the end of an epoch where it must: within an epoch no row is dropped and
none comes twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlinf_cli.data.mixing import Mixture
from rlinf_cli.data.order import RowOrder, Span
from rlinf_cli.data.rows import Row
from rlinf_cli.data.sources import Source


@dataclass(frozen=True, slots=True)
class StreamItem:
    """A row and the id that it has in this pass over the data."""

    id: str
    """`EPOCH-ROW`, both counted from 0; `0-INDEX` for a generator. Of several sources: `SOURCE.EPOCH-ROW`."""
    row: Row


@dataclass(frozen=True, slots=True)
class Place:
    """Number of the source, epoch, and row among those of the source."""

    source: int
    epoch: int
    index: int


class PromptStream:
    """The rows of each batch, in any order of asking. Nothing is asked of the sources before the first batch is."""

    def __init__(self, sources: Sequence[Source], per_batch: int, seed: int, shuffle: bool) -> None:
        self.sources, self.per_batch, self._seed, self._shuffle = tuple(sources), per_batch, seed, shuffle
        self._mixture = Mixture([source.weight for source in sources] or [1.0])
        self._orders: dict[int, Callable[[int], tuple[int, int]]] = {}

    def batch(self, number: int) -> list[StreamItem]:
        """The `per_batch` items of batch `number`, counted from 0."""
        return [StreamItem(self._id(place), self.sources[place.source].row(place.index)) for place in self.places(number)]

    def places(self, number: int) -> list[Place]:
        """Where each item of batch `number` comes from."""
        first = number * self.per_batch
        return [self._place(place) for place in range(first, first + self.per_batch)]

    def epoch(self, batches: int) -> float:
        """Passes over the data in so many batches: over the source of most rows; 0 when all are generators."""
        sizes = [source.size or 0 for source in self.sources]
        if not sizes:
            return 0.0
        largest = sizes.index(max(sizes))
        return self._mixture.before(largest, batches * self.per_batch) / sizes[largest] if sizes[largest] else 0.0

    def _place(self, place: int) -> Place:
        source, own = self._mixture.pick(place)
        if source not in self._orders:
            self._orders[source] = self._order(source)
        return Place(source, *self._orders[source](own))

    def _order(self, source: int) -> Callable[[int], tuple[int, int]]:
        size = self.sources[source].size
        if size is None:
            return lambda own: (0, own)
        if not self._shuffle:
            return lambda own: divmod(own, size)
        seed = f"{self._seed}.{source}" if source else str(self._seed)
        return RowOrder(size, seed, self.per_batch, lambda own: self._batch_of(source, own))

    def _batch_of(self, source: int, own: int) -> Span:
        """The source's own places in the batch that holds one of them."""
        first = self._mixture.place(source, own) // self.per_batch * self.per_batch
        return self._mixture.before(source, first), self._mixture.before(source, first + self.per_batch)

    def _id(self, place: Place) -> str:
        number = self.sources[place.source].number(place.index)
        return f"{place.source}.{place.epoch}-{number}" if len(self.sources) > 1 else f"{place.epoch}-{number}"

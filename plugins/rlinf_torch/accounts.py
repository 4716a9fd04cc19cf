"""What an optimiser step has seen, on one micro-batch, one rank, or all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rlinf_torch.distributed import RankGroup


@dataclass(frozen=True)
class Tally:
    """What an optimiser step has seen so far: on one micro-batch, one rank, or all of them."""

    tokens: int = 0
    weights: float = 0.0
    """Sum of the tokens' shares: 1 over a whole optimiser step, less under `sequence-sum`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The loss and what the loss function measured: sums with these weights."""
    sums: Mapping[str, float] = field(default_factory=dict)
    """Sums over tokens."""
    largest: Mapping[str, float] = field(default_factory=dict)
    """Of all tokens."""


def merge(tallies: Sequence[Tally]) -> Tally:
    """The tally of all together."""
    largest: dict[str, float] = {}
    for tally in tallies:
        largest |= {name: max(value, largest.get(name, value)) for name, value in tally.largest.items()}
    return Tally(sum(tally.tokens for tally in tallies), sum(tally.weights for tally in tallies),
                 added(tally.metrics for tally in tallies), added(tally.sums for tally in tallies), largest)


def added(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name."""
    total: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            total[name] = total.get(name, 0.0) + value
    return total


class Accounts:
    """Brings the ranks' tallies together. Their names are agreed on once; after that numbers travel with the gradients."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._names = Tally()
        """What its mappings are called, with any value."""

    def exchange(self, own: Tally, gradients: Sequence[Tensor]) -> Tally:
        """Sum the gradients over all ranks, in place; what all have seen."""
        names = [(kind, name) for kind in _KINDS for name in getattr(self._names, kind)]
        fits = not own.tokens or all(getattr(own, kind).keys() == getattr(self._names, kind).keys() for kind in _KINDS)
        values = [getattr(own, kind)[name] for kind, name in names] if fits and own.tokens else [0.0] * len(names)
        rows = self._group.sum_and_tell(gradients, [float(fits), own.tokens, own.weights, *values])
        if all(row[0] for row in rows):
            return merge([_tally(row[1:], names) for row in rows if row[1]])
        tally = merge(self._group.gather(own))  # all ranks come here, as all have seen the same
        self._names = Tally(metrics=tally.metrics, sums=tally.sums, largest=tally.largest)
        return tally


_KINDS = ("metrics", "sums", "largest")


def _tally(row: Sequence[float], names: Sequence[tuple[str, str]]) -> Tally:
    found: dict[str, dict[str, float]] = {kind: {} for kind in _KINDS}
    for (kind, name), value in zip(names, row[2:], strict=True):
        found[kind][name] = value
    return Tally(round(row[0]), row[1], **found)

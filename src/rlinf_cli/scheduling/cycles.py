"""What a cycle of two roles costs where each has devices of its own: one half of the batch is with the one, the other half with
the other, and then they change.

A pass of both halves through both roles takes, with s and a the seconds of a half in either,

    max(2 s, 2 a, s + a)

s and a follow from what each role computed when the two were measured together, in halves too, in turn on the same devices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlinf_cli.scheduling.costs import law_of
from rlinf_cli.scheduling.problem import Apart, Batch, Law

MOST = 64
"""Numbers of devices that are looked at, evenly spaced."""


def apart(members: Sequence[Batch], devices: int, samples: int, tokens: int, fits: Sequence[int] = ()) -> Apart | None:
    """The best way to share out each number of devices among two members; None where there is none. `samples`: of the whole
    batch, `tokens`: of a sample · `fits`: numbers of ranks that a half of the batch can be shared out to; none: any."""
    if len(members) != 2 or devices < 2:
        return None
    step = -(-devices // MOST)
    best = {count: found for count in range(max(2, step), devices + 1, step)
            if (found := _best(members, count, samples, tokens, fits)) is not None}
    if not best:
        return None
    laws = tuple((count, Law(sample_s=seconds * count / samples)) for count, (seconds, _) in best.items())
    return Apart(Batch(laws), tuple((count, widths) for count, (_, widths) in best.items()))


def _best(members: Sequence[Batch], devices: int, samples: int, tokens: int,
          fits: Sequence[int]) -> tuple[float, tuple[int, ...]] | None:
    ways = list(_ways(devices, fits))
    if not ways:
        return None
    return min((_seconds(members, widths, samples, tokens), widths) for widths in ways)


def _ways(devices: int, fits: Sequence[int]) -> Iterator[tuple[int, int]]:
    for first in range(1, devices):
        if not fits or (first in fits and devices - first in fits):
            yield first, devices - first


def _seconds(members: Sequence[Batch], widths: tuple[int, ...], samples: int, tokens: int) -> float:
    one, other = (_half(cost, ranks, samples, tokens) for cost, ranks in zip(members, widths, strict=True))
    return max(2 * one, 2 * other, one + other)


def _half(cost: Batch, ranks: int, samples: int, tokens: int) -> float:
    chunk, sample, token = (float(rate) for rate in law_of(cost, ranks))
    return (cost.step_s + chunk + (sample + token * tokens) * samples / ranks) / 2

"""Taking items from a channel in chunks of the size that the time spent on each has shown to be good."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rlinf_cli.flow.channel import Channel, Lease
from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.state.granularity import ChunkDone, Granularity, Take

T = TypeVar("T")


def chunks(channel: Channel, granularity: Granularity) -> Iterator[list[Any]]:
    """Chunks of a channel's items until it closes."""
    return _measured(lambda take: next(channel.chunks(take.at_most, at_least=take.at_least), []), granularity)


def leased_chunks(channel: Channel, granularity: Granularity) -> Iterator[list[Lease]]:
    """As `chunks`, leased."""
    return _measured(lambda take: next(channel.leases(take.at_most, at_least=take.at_least), []), granularity,
                     lambda: channel.qsize())


def fill_in(samples: Channel, granularity: Granularity, one_by_one: bool, fill: Callable[[list[Sample]], None],
            *outs: Channel) -> int:
    """Have `fill` add to the samples of each chunk of groups what it knows of them, and put the groups into all `outs`; how many
    chunks there were. `one_by_one`: each group by itself, so that last bits do not depend on which ones came together."""
    count = 0
    for leases in leased_chunks(samples, granularity):
        count += 1
        for part in [[lease] for lease in leases] if one_by_one else [leases]:
            fill([sample for lease in part for sample in lease.item])
        for lease in leases:
            weight = sum(map(len, lease.item))
            for out in outs[:-1]:
                out.put(lease.item, weight=weight)
            outs[-1].put(lease.item, weight=weight, settles=[lease])
    return count


def _measured(get: Callable[[Take], list[T]], granularity: Granularity,
              waiting: Callable[[], int] = lambda: 0) -> Iterator[list[T]]:
    """What `get` gives until it gives nothing."""
    while True:
        asked = time.perf_counter()
        chunk = get(granularity.take)
        if not chunk:
            return
        began = time.perf_counter()
        yield chunk
        seconds = time.perf_counter() - began
        granularity.handle(ChunkDone(len(chunk), seconds, began - asked, waiting() if granularity.sharers > 1 else 0))

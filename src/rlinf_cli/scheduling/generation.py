"""When responses are done: generation as what its decode steps cost.

All active responses of a replica advance together, a token a step, and a step takes `step_s(k)` with k of them active. So a
response that is begun when the replica has made `a` steps ends with its step `a + length`, and between two completions the
time goes by evenly: the whole batch costs an event per response, not one per token.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.problem import Decoding

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Dealing: TypeAlias = Literal["as_taken", "round_robin"]

FOLLOWED = 1536
"""Largest batch for which an estimate follows replicas that fill their slots again."""
PART = 512
"""Samples of a larger one with which it does so."""


def finish_times(decoding: Decoding, lengths: Ints, replicas: int, dealing: Dealing = "as_taken", group: int = 1) -> Floats:
    """Seconds from the begin of a batch to the end of each response [samples].

    `as_taken`: the next group goes to the replica that has room for it first · `round_robin`: sample i is dealt to replica i
    modulo `replicas` beforehand.
    """
    steps = step_seconds(decoding, replicas)
    dealt = _dealt(len(lengths), replicas, 1) if dealing == "round_robin" else _first(decoding, len(lengths), replicas, group)
    if dealt is not None and dealt.counts.max() <= decoding.slots:
        times = _all_at_once(lengths, dealt, steps)
        return times + decoding.call_s + _prefill(decoding, replicas) * dealt.shares
    pool = _Pool(decoding, lengths, replicas, group, None if dealt is None else dealt.queues())
    return pool.run() + decoding.call_s


@dataclass(frozen=True)
class _Dealt:
    """Whose samples are whose: those of the first replica, then those of the next, `order` [samples]; how many each has,
    `counts` [replicas]."""

    order: Ints
    counts: Ints

    @property
    def shares(self) -> Ints:
        """Of each sample: how many samples its replica has [samples]."""
        found = np.empty_like(self.order)
        found[self.order] = np.repeat(self.counts, self.counts)
        return found

    def queues(self) -> list[Ints]:
        return np.split(self.order, np.cumsum(self.counts)[:-1])


def step_seconds(decoding: Decoding, replicas: int) -> Floats:
    """Seconds of a decode step with k active responses, [slots + 1]."""
    active = np.arange(decoding.slots + 1)
    return decoding.step_s.at(active) * decoding.slowdown.at(float(replicas))


def _prefill(decoding: Decoding, replicas: int) -> float:
    return decoding.prefill_s * float(decoding.slowdown.at(float(replicas)))


def _dealt(samples: int, replicas: int, group: int) -> _Dealt:
    """A group to each replica in turn, again and again."""
    groups = -(-samples // group)
    rounds = np.arange(-(-groups // replicas) * replicas).reshape(-1, replicas).T
    mine = expanded(rounds[rounds < groups], group)
    counts = group * (groups // replicas + (np.arange(replicas) < groups % replicas))
    counts[(groups - 1) % replicas] -= groups * group - samples
    return _Dealt(mine[mine < samples], counts)


def expanded(groups: Ints, size: int) -> Ints:
    """The samples of groups, in their order."""
    return (groups[:, None] * size + np.arange(size)).ravel()


def _first(decoding: Decoding, samples: int, replicas: int, group: int) -> _Dealt | None:
    """Whose samples are whose where all are begun at once: the next group goes to who has fewest. None where there are too
    many for that."""
    groups = -(-samples // group)
    return None if -(-groups // replicas) * group > decoding.slots else _dealt(samples, min(replicas, groups), group)


def _all_at_once(lengths: Ints, dealt: _Dealt, steps: Floats) -> Floats:
    """No replica has more than its slots: the shortest ends first, and the steps of the others become cheaper."""
    counts = dealt.counts
    most = int(counts.max())
    table = np.full((len(counts), most), -1, np.int64)
    table[np.arange(most) >= most - counts[:, None]] = dealt.order
    held = np.where(table >= 0, lengths[table], 0)
    order = np.argsort(held, axis=1)
    ends = np.take_along_axis(held, order, axis=1)
    active = np.arange(most, 0, -1)
    # what is not there has length 0, and is done before the first step
    seconds = np.cumsum(np.diff(ends, axis=1, prepend=0) * steps[active], axis=1)
    times = np.zeros(len(lengths))
    names = np.take_along_axis(table, order, axis=1)
    times[names[names >= 0]] = seconds[names >= 0]
    return times


class _Pool:
    """Replicas whose slots are filled again as responses end."""

    def __init__(self, decoding: Decoding, lengths: Ints, replicas: int, group: int, queues: list[Ints] | None) -> None:
        self._steps = step_seconds(decoding, replicas).tolist()
        self._prefill = _prefill(decoding, replicas)
        self._lengths, self._slots = lengths.tolist(), decoding.slots
        common = iter([list(range(first, min(first + group, len(lengths)))) for first in range(0, len(lengths), group)])
        self._sources: list[Iterator[list[int]]] = (
            [common] * replicas if queues is None else [iter([[one] for one in queue.tolist()]) for queue in queues])
        self._group = group if queues is None else 1
        self._active: list[list[tuple[int, int]]] = [[] for _ in self._sources]
        """A heap of (step at whose end it is done, sample) of each replica."""
        self._made = [0] * len(self._sources)
        self._times = [0.0] * len(lengths)

    def run(self) -> Floats:
        events: list[tuple[float, int]] = []
        self._begin()
        for replica, active in enumerate(self._active):
            if active:
                heapq.heappush(events, (self._next(replica, len(active) * self._prefill), replica))
        while events:
            now, replica = heapq.heappop(events)
            later = now + self._end(replica, now)
            if self._active[replica]:
                heapq.heappush(events, (self._next(replica, later), replica))
        return np.array(self._times)

    def _begin(self) -> None:
        """The first groups, one to each replica in turn."""
        is_fed = True
        while is_fed:
            is_fed = False
            for replica in range(len(self._sources)):
                is_fed |= self._has_room(replica) and self._take(replica) > 0

    def _has_room(self, replica: int) -> bool:
        used = len(self._active[replica])
        return used + self._group <= self._slots or not used

    def _take(self, replica: int) -> int:
        """One more group, for a replica that has room; how many samples it has."""
        group = next(self._sources[replica], [])
        for sample in group:
            heapq.heappush(self._active[replica], (self._made[replica] + self._lengths[sample], sample))
        return len(group)

    def _next(self, replica: int, now: float) -> float:
        """When the next response ends."""
        active = self._active[replica]
        left: int = active[0][0] - self._made[replica]
        return now + left * float(self._steps[min(len(active), self._slots)])

    def _end(self, replica: int, now: float) -> float:
        """The responses that end now, and others in their place; the seconds that those need to begin."""
        active = self._active[replica]
        self._made[replica] = active[0][0]
        while active and active[0][0] == self._made[replica]:
            self._times[heapq.heappop(active)[1]] = now
        begun = 0
        while self._has_room(replica) and (count := self._take(replica)):
            begun += count
        return begun * self._prefill


def estimated_seconds(decoding: Decoding, lengths: Ints, replicas: Ints, dealing: Dealing = "as_taken", group: int = 1) -> Floats:
    """About how long a batch takes on so many replicas, [as `replicas`], for thousands of numbers at once.

    A closed form, times its ratio to the exact time, which is computed at numbers of replicas that double and is straight in
    the logarithm between them. For batches of more than `FOLLOWED` samples it is computed only where all are begun at once,
    which costs least, and for one replica, with a part of the batch.
    """
    counts, group = np.maximum(replicas, 1), 1 if dealing == "round_robin" else group
    first = max(1, -(-len(lengths) // (decoding.slots // group * group or group)))
    rungs = 2 ** np.arange(int(counts.max(initial=1)).bit_length())
    rungs = rungs if len(lengths) <= FOLLOWED else np.union1d([1], rungs[rungs >= first])
    ordered = np.sort(lengths)
    closed = _closed_form(decoding, ordered, np.concatenate([counts, rungs]), group)
    ratios = [_ratio(decoding, lengths, int(rung), dealing, group, seconds)
              for rung, seconds in zip(rungs, closed[len(counts) :], strict=True)]
    return closed[: len(counts)] * np.interp(np.log(counts), np.log(rungs), ratios)


def _ratio(decoding: Decoding, lengths: Ints, replicas: int, dealing: Dealing, group: int, closed: float) -> float:
    """Of the exact time to that of the closed form."""
    if replicas > 1 or len(lengths) <= FOLLOWED:
        return float(finish_times(decoding, lengths, replicas, dealing, group).max() / closed)
    every = -(-len(lengths) // (PART * group))
    groups = np.arange(len(lengths) // group)[::every]
    part = lengths[expanded(groups, group)]
    expected = _closed_form(decoding, np.sort(part), np.ones(1, np.int64), group)[0]
    return float(finish_times(decoding, part, 1, dealing, group).max() / expected)


def _closed_form(decoding: Decoding, ordered: Ints, replicas: Ints, group: int) -> Floats:
    """A replica with samples for all its slots works at full speed until it has as many left as it has slots; those then drain.
    The longest response of all is on some replica, which is taken to be like the others otherwise. `ordered`: lengths from
    short to long [samples]."""
    steps = decoding.step_s.at(np.arange(decoding.slots + 1))
    mine = np.minimum(np.ceil(len(ordered) / (replicas * group)).astype(np.int64) * group, len(ordered))
    together = np.minimum(mine, decoding.slots)
    kinds, place = np.unique(together, return_inverse=True)
    seconds, tokens = (found[place] for found in _drained(ordered, kinds, steps))
    full = np.where(mine > decoding.slots, np.maximum(ordered.sum() / replicas - tokens, 0.0), 0.0)
    seconds = seconds + full / together * steps[together] + decoding.prefill_s * mine
    return seconds * decoding.slowdown.at(replicas) + decoding.call_s


def _drained(ordered: Ints, counts: Ints, steps: Floats) -> tuple[Floats, Floats]:
    """Seconds and tokens of so many responses that are begun at once, [as `counts`]: evenly spaced ones, the longest among
    them."""
    number = np.arange(1, int(counts.max()) + 1)
    left = counts[:, None] - number + 1
    places = np.maximum(np.round(len(ordered) * number / counts[:, None]).astype(np.int64) - 1, 0)
    ends = np.where(left > 0, ordered[np.minimum(places, len(ordered) - 1)], 0)
    seconds = np.diff(ends, axis=1, prepend=0) * steps[np.maximum(left, 0)]
    return np.where(left > 0, seconds, 0.0).sum(axis=1), ends.sum(axis=1, dtype=np.float64)

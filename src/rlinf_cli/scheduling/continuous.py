"""Generation that runs ahead of training: slots that one batch leaves are filled with the next one's responses.

As `generation`, but for batches that follow each other, each of which may begin at a time of its own.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np

from rlinf_cli.scheduling.generation import Floats, Ints, step_seconds
from rlinf_cli.scheduling.problem import Decoding


class Continuous:
    """Replicas that never stop between batches. Batches are given in order, each before the one before it has ended."""

    def __init__(self, decoding: Decoding, replicas: int, group: int) -> None:
        self._steps = step_seconds(decoding, replicas).tolist()
        self._prefill = decoding.prefill_s * float(decoding.slowdown.at(float(replicas)))
        self._slots, self._group = decoding.slots, group
        self._replicas = [_Replica() for _ in range(replicas)]
        self._events: list[tuple[float, int, int]] = []
        """Time, replica (-1: a batch may begin), and the replica's state that the event is of."""
        self._waiting: deque[tuple[float, int, list[tuple[int, int]]]] = deque()
        """Groups that are not begun: earliest time, batch, and (length, sample) of each."""
        self._times: dict[int, list[float]] = {}
        self._left: dict[int, int] = {}
        self.active_s = 0.0
        """Seconds in which replicas had something to do, added up."""

    @property
    def replicas(self) -> int:
        return len(self._replicas)

    def give(self, batch: int, lengths: Ints, begins: float) -> None:
        """A batch, which may begin then."""
        numbered = list(zip(lengths.tolist(), range(len(lengths)), strict=True))
        for first in range(0, len(numbered), self._group):
            self._waiting.append((begins, batch, numbered[first : first + self._group]))
        self._times[batch], self._left[batch] = [0.0] * len(lengths), len(lengths)
        heapq.heappush(self._events, (begins, -1, 0))

    def finish(self, batch: int) -> Floats:
        """When each of its responses is done [samples]."""
        while self._left[batch]:
            self.event()
        return np.array(self._times.pop(batch))

    @property
    def next_at(self) -> float:
        """When something happens next; inf where nothing does before another batch is given."""
        return self._events[0][0] if self._events else float("inf")

    def event(self) -> list[tuple[int, int]]:
        """What happens next: (batch, sample) of the responses that end."""
        now, place, version = heapq.heappop(self._events)
        if place < 0:
            self._fill(now)
        elif version == self._replicas[place].version:
            return self._end(place, now)
        return []

    def _fill(self, now: float) -> None:
        """What may begin now, a group to each replica in turn, those with most room first."""
        order = sorted(range(len(self._replicas)), key=lambda place: len(self._replicas[place].active))
        while any([self._take(place, now) for place in order]):  # noqa: C419  each has its turn
            pass

    def _end(self, place: int, now: float) -> list[tuple[int, int]]:
        replica = self._replicas[place]
        self._advance(replica, now)
        due, ended = replica.active[0][0], []
        while replica.active and replica.active[0][0] <= due + 1e-9:
            _, batch, sample = heapq.heappop(replica.active)
            self._times[batch][sample] = now
            self._left[batch] -= 1
            ended.append((batch, sample))
        while self._take(place, now):
            pass
        self._plan(place)
        return ended

    def _take(self, place: int, now: float) -> bool:
        replica = self._replicas[place]
        if not self._waiting or self._waiting[0][0] > now or (
                replica.active and len(replica.active) + self._group > self._slots):
            return False
        self._advance(replica, now)
        _, batch, group = self._waiting.popleft()
        for length, sample in group:
            heapq.heappush(replica.active, (replica.made + length, batch, sample))
        replica.clock += len(group) * self._prefill
        self._plan(place)
        return True

    def _advance(self, replica: _Replica, now: float) -> None:
        """Up to now; what new responses need to begin may reach beyond."""
        if replica.active and now > replica.clock:
            replica.made += (now - replica.clock) / self._steps[min(len(replica.active), self._slots)]
            self.active_s += now - replica.clock
        replica.clock = max(replica.clock, now)

    def _plan(self, place: int) -> None:
        replica = self._replicas[place]
        replica.version += 1
        if replica.active:
            left = replica.active[0][0] - replica.made
            at = replica.clock + left * self._steps[min(len(replica.active), self._slots)]
            heapq.heappush(self._events, (at, place, replica.version))


class _Replica:
    def __init__(self) -> None:
        self.active: list[tuple[float, int, int]] = []
        """A heap of (step at whose end it is done, batch, sample)."""
        self.made = 0.0
        self.clock = 0.0
        self.version = 0

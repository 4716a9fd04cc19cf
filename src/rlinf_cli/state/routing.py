"""Which replica answers an episode's next turn: the one that has read the episode so far, unless it is much busier than another.

A pure state machine: what is outstanding is told to it, and it says where the next request goes. Work is counted in tokens:
what a replica has still to write, at most, and to read. A replica that has read an episode before reads only what is new;
another one reads all of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

READ = 0.05
"""Work of reading a token, to that of writing one: a prompt is read many tokens at once."""
SLACK = 2.0
"""A replica may have so many times the work of the least busy one, and one episode more, before an episode leaves it."""


@dataclass(frozen=True)
class Asked:
    """A request that is under way."""

    replica: int
    work: float


class Routing:
    """`replicas`: how many there are."""

    def __init__(self, replicas: int) -> None:
        if replicas < 1:
            raise ValueError("there is no replica to send requests to")
        self.outstanding = [0.0] * replicas
        self.homes: dict[Hashable, int] = {}
        """Episode -> the replica that answered it last."""
        self.moved = 0
        """Times that an episode has left its replica."""
        self._asked: dict[Hashable, Asked] = {}

    def ask(self, request: Hashable, episode: Hashable, length: int, fresh: int, most: int) -> int:
        """Where a request goes. `length`: tokens of its prompt, of which `fresh` have come since its episode's last turn; `most`:
        tokens that it may write. Raises ValueError for a request that is under way."""
        if request in self._asked:
            raise ValueError(f"request {request!r} is under way")
        home = self.homes.get(episode)
        replica = self._choose(home, most + READ * length)
        self.moved += home is not None and replica != home
        work = most + READ * (fresh if replica == home else length)
        self.homes[episode], self._asked[request] = replica, Asked(replica, work)
        self.outstanding[replica] += work
        return replica

    def answered(self, request: Hashable) -> None:
        """A request has ended. Raises KeyError for one that is not under way."""
        asked = self._asked.pop(request)
        self.outstanding[asked.replica] -= asked.work

    def _choose(self, home: int | None, work: float) -> int:
        least = min(range(len(self.outstanding)), key=lambda replica: (self.outstanding[replica], replica))
        if home is None or self.outstanding[home] > SLACK * self.outstanding[least] + work:
            return least
        return home

    def validate(self) -> None:
        """Raises AssertionError where what is outstanding is not the work of the requests under way."""
        for replica, outstanding in enumerate(self.outstanding):
            mine = sum(asked.work for asked in self._asked.values() if asked.replica == replica)
            assert abs(outstanding - mine) < 1e-6 * (1 + mine), f"replica {replica}: {outstanding} is told, {mine} are under way"

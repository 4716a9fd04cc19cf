"""What one channel holds: items that wait, are offered or leased, and the gets that wait for them."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from rlinf_cli.state.channel_events import Get, Item, Key, LeaseId

NOBODY = 0
"""The client of a lease whose client is gone, or has given it back, after it has put what settles the lease."""


@dataclass(slots=True)
class Tally:
    """Conservation: put = delivered + leased + waiting + offered + dropped."""

    put: int = 0
    accepted: int = 0
    delivered: int = 0
    """Taken for good: without a lease, or with one that is settled."""
    dropped: Counter[str] = field(default_factory=Counter)
    puts: Counter[str] = field(default_factory=Counter)
    takes: Counter[str] = field(default_factory=Counter)
    """By the identity of the process. An item that is given back is taken again."""


@dataclass(slots=True)
class Lease:
    client: int
    item: Item
    place: int
    """Items were leased for the first time in this order."""


@dataclass(slots=True)
class Channel:
    """One channel's state; changed by `ChannelsState` only."""

    name: str
    capacity: int = 0
    capacity_bytes: int = 0
    limit: int = 0
    """Items that are accepted at most; 0: any number."""
    waiting: dict[Key, deque[Item]] = field(default_factory=dict)
    offered: deque[Item] = field(default_factory=deque)
    leased: dict[int, Lease] = field(default_factory=dict)
    gets: dict[Key, dict[tuple[int, int], Get]] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    guarded: set[str] = field(default_factory=set)
    told: list[int] = field(default_factory=list)
    """Clients that know that the channel is full."""
    closed: bool = False
    broken: str | None = None
    count: int = 0
    size: int = 0
    tally: Tally = field(default_factory=Tally)
    _places: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of the items at the front of the queues that have been leased before."""
    _leased_so_far: int = 0

    @property
    def full(self) -> bool:
        return bool(self.limit) and self.tally.accepted >= self.limit

    @property
    def ending(self) -> bool:
        """Nothing new will come: gets are content with what is there."""
        return self.closed and not self.offered

    def drained(self, key: Key) -> bool:
        """Whether nothing of this key will ever come."""
        return self.ending and key not in self.waiting and not any(lease.item.key == key for lease in self.leased.values())

    # ---- items ----

    def claimed(self, key: Key) -> int:
        """How many items of this key the waiting gets ask for."""
        return sum(get.at_least for get in self.gets.get(key, {}).values())

    def weighed(self, key: Key) -> bool:
        """Whether a waiting get of this key may be content with less than it asks for."""
        return any(get.weight is not None for get in self.gets[key].values())

    def excess(self) -> int:
        """How many items wait beyond what waiting gets ask for: what `capacity` bounds."""
        return self.count - sum(min(len(self.waiting.get(key, ())), self.claimed(key)) for key in self.gets)

    def has_room(self, item: Item) -> bool:
        if not self.limit and not self.capacity and not self.capacity_bytes:
            return True
        if self.full:
            return False
        if not self.capacity and not self.capacity_bytes:
            return True
        if len(self.waiting.get(item.key, ())) < self.claimed(item.key):
            return True
        if self.capacity and self.excess() >= self.capacity:
            return False
        return not self.capacity_bytes or not self.count or self.size + item.size <= self.capacity_bytes

    def add(self, item: Item) -> None:
        self.waiting.setdefault(item.key, deque()).append(item)
        self.count += 1
        self.size += item.size
        self.tally.accepted += 1

    def take(self, key: Key, n: int) -> tuple[Item, ...]:
        """Deliver the first `n` items of a key for good."""
        items = self._pop(key, n)
        self.tally.delivered += n
        if self._places:
            for item in items:
                self._places.pop((item.producer, item.number), None)
        return items

    def lend(self, key: Key, n: int, client: int, numbers: Iterable[int]) -> tuple[Item, ...]:
        """Lease the first `n` items of a key under these numbers."""
        items = self._pop(key, n)
        for number, item in zip(numbers, items):
            place = self._places.pop((item.producer, item.number), None)
            if place is None:
                place = self._leased_so_far = self._leased_so_far + 1
            self.leased[number] = Lease(client, item, place)
        return items

    def settle(self, number: int) -> Item:
        self.tally.delivered += 1
        return self.leased.pop(number).item

    def part_with(self, client: int, promised: Container[LeaseId], among: Iterable[int] | None = None) -> list[int]:
        """The leases that a client does not finish (`among` these; by default all of its). Those whose result is offered
        already (`promised`) are nobody's from now on, and not among them, until it is decided what becomes of the result."""
        numbers = list(self.leased) if among is None else [number for number in dict.fromkeys(among) if number in self.leased]
        mine = [number for number in numbers if self.leased[number].client == client]
        for number in mine:
            if LeaseId(self.name, number) in promised:
                self.leased[number].client = NOBODY
        return [number for number in mine if self.leased[number].client == client]

    def put_back(self, number: int) -> Item:
        """End a lease; its item waits again, where it was: behind those only that were leased before it."""
        lease = self.leased.pop(number)
        item = lease.item
        queue = self.waiting.setdefault(item.key, deque())
        ahead = 0
        while ahead < len(queue) and self._place(queue[ahead]) < lease.place:
            ahead += 1
        queue.insert(ahead, item)
        self._places[item.producer, item.number] = lease.place
        self.count += 1
        self.size += item.size
        return item

    def clear(self, reason: str) -> tuple[Item, ...]:
        """Discard what waits, what is offered and what is leased."""
        items = (*(item for queue in self.waiting.values() for item in queue), *self.offered,
                 *(lease.item for lease in self.leased.values()))
        for store in (self.waiting, self.offered, self.leased, self._places):
            store.clear()
        self.count = self.size = 0
        self.tally.dropped[reason] += len(items)
        return items

    def _pop(self, key: Key, n: int) -> tuple[Item, ...]:
        if not n:
            return ()
        queue = self.waiting[key]
        items = tuple(queue.popleft() for _ in range(n))
        if not queue:
            del self.waiting[key]
        self.count -= n
        self.size -= sum(item.size for item in items)
        return items

    def _place(self, item: Item) -> float:
        return self._places.get((item.producer, item.number), math.inf)

    # ---- gets ----

    def next_get(self, key: Key) -> tuple[Get, int] | None:
        """Which of the waiting gets of a key is to be answered now, with how many items.

        Of those that lease, the client with the least leased weight comes first; else the one that came first.
        """
        if key not in self.gets or (key not in self.waiting and not self.ending):
            return None
        for get in self._in_turn(self.gets[key].values()):
            n, answer = self.share(get)
            if answer:
                return get, n
        return None

    def _in_turn(self, gets: Iterable[Get]) -> Sequence[Get]:
        gets = list(gets)
        if len(gets) < 2 or not any(get.lease for get in gets):
            return gets
        loads: Counter[int] = Counter()
        for lease in self.leased.values():
            loads[lease.client] += lease.item.weight  # type: ignore[assignment]
        return sorted(gets, key=lambda get: loads[get.client] if get.lease else 0)

    def share(self, get: Get) -> tuple[int, bool]:
        """How many items the get would receive now, and whether it is to be answered now."""
        queue = self.waiting.get(get.key, ())
        if get.weight is None:
            n, full = min(len(queue), get.n), False
        else:
            n, full = _fitting(queue, get.n, get.weight)
        enough = full or n >= min(get.at_least, get.n)
        return n, enough or (self.ending and (n > 0 or self.drained(get.key)))

    def forget_get(self, get: Get) -> None:
        del self.gets[get.key][get.client, get.request]
        if not self.gets[get.key]:
            del self.gets[get.key]

    def gets_of(self, client: int) -> list[Get]:
        return [get for gets in self.gets.values() for get in gets.values() if get.client == client]

    # ---- checks ----

    def validate(self) -> None:
        """Assert what must hold between two events."""
        queued = [item for queue in self.waiting.values() for item in queue]
        tally = self.tally
        assert self.count == len(queued)
        assert self.size == sum(item.size for item in queued)
        assert tally.put == (tally.delivered + len(self.leased) + self.count + len(self.offered)
                             + sum(tally.dropped.values())), "an item was lost or doubled"
        assert all(self.waiting.values()), "an empty queue was kept"
        assert all(self.gets.values()), "an empty list of gets was kept"
        assert not self.offered or not self.has_room(self.offered[0]), "room for an item that is kept out"
        assert not self.offered or not self.full, "an item is offered that will never be accepted"
        self._validate_leases(queued)
        for gets in self.gets.values():
            for get in gets.values():
                assert not self.share(get)[1], "a get waits that could be answered"
        assert self.broken is None or not (queued or self.offered or self.gets or self.leased)
        assert not any(self.drained(key) for key in self.gets)

    def _validate_leases(self, queued: Sequence[Item]) -> None:
        mine = {(item.producer, item.number) for item in queued}
        leased = [(lease.item.producer, lease.item.number) for lease in self.leased.values()]
        assert len(set(leased)) == len(leased), "an item is leased twice"
        assert mine.isdisjoint(leased), "an item waits and is leased"
        assert mine >= set(self._places), "the place of an item is kept that does not wait"
        for queue in self.waiting.values():
            places = [self._place(item) for item in queue]
            assert places == sorted(places), "an item that was given back is not where it was"


def _fitting(queue: Iterable[Item], n: int, limit: float) -> tuple[int, bool]:
    """How many of the first `n` items weigh `limit` together at most (but one at least); whether one was left out."""
    total, count = 0.0, 0
    for item in queue:
        if count == n:
            break
        total += item.weight
        if count and total > limit:
            return count, True
        count += 1
    return count, False

"""All channels as one pure state machine: events in, instructions out; no sockets, no clock, no payload is read.

An item is put by a client, waits until a get asks for it, and is delivered once. A bounded channel accepts only as
many items as it may hold; one for which there is no room is kept as *offered* until there is. Capacity bounds what
waits *beyond* what waiting gets ask for, so that a get of at least 8 items ends on a channel of capacity 2.

Order: first in, first out for each key. An item with a key goes only to a get with that key, one without only to a get
without. Waiting gets are served in order of arrival, but one that asks for more than there is holds nobody up.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.state.channel_events import (
    Accept,
    Cancel,
    CancelAll,
    Close,
    Confirm,
    Create,
    Declare,
    Deliver,
    Done,
    Drop,
    ErrorKind,
    Event,
    Fail,
    Get,
    Gone,
    Instruction,
    Item,
    Join,
    Key,
    Put,
    Refuse,
    Release,
    Withdraw,
)


@dataclass(slots=True)
class Tally:
    """Conservation: put = delivered + waiting + offered + dropped."""

    put: int = 0
    delivered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Channel:
    """One channel's state; changed by `ChannelsState` only."""

    name: str
    capacity: int = 0
    capacity_bytes: int = 0
    waiting: dict[Key, deque[Item]] = field(default_factory=dict)
    offered: deque[Item] = field(default_factory=deque)
    gets: dict[Key, dict[tuple[int, int], Get]] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    closed: bool = False
    broken: str | None = None
    count: int = 0
    size: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def drained(self) -> bool:
        return self.closed and not self.offered

    def claimed(self, key: Key) -> int:
        """How many items of this key the waiting gets ask for."""
        return sum(get.at_least for get in self.gets.get(key, {}).values())

    def excess(self) -> int:
        """How many items wait beyond what waiting gets ask for: what `capacity` bounds."""
        return self.count - sum(min(len(self.waiting.get(key, ())), self.claimed(key)) for key in self.gets)

    def has_room(self, item: Item) -> bool:
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

    def take(self, key: Key, n: int) -> tuple[Item, ...]:
        queue = self.waiting[key]
        items = tuple(queue.popleft() for _ in range(n))
        if not queue:
            del self.waiting[key]
        self.count -= n
        self.size -= sum(item.size for item in items)
        self.tally.delivered += n
        return items

    def share(self, get: Get) -> tuple[int, bool]:
        """How many items the get would receive now, and whether it is to be answered now."""
        queue = self.waiting.get(get.key, ())
        if get.weight is None:
            n = min(len(queue), get.n)
            return n, n >= min(get.at_least, get.n) or self.drained
        n, full = _fitting(queue, get.n, get.weight)
        return n, full or n >= min(get.at_least, get.n) or self.drained

    def forget_gets(self, client: int) -> None:
        """Take out the gets of a client that is gone."""
        for key, gets in list(self.gets.items()):
            self.gets[key] = {asked: get for asked, get in gets.items() if get.client != client}
            if not self.gets[key]:
                del self.gets[key]

    def clear(self, reason: str) -> tuple[Item, ...]:
        """Discard what waits and what is offered."""
        items = tuple(item for queue in self.waiting.values() for item in queue) + tuple(self.offered)
        self.waiting.clear()
        self.offered.clear()
        self.count = self.size = 0
        self.tally.dropped[reason] += len(items)
        return items


def _fitting(queue: Sequence[Item], n: int, limit: float) -> tuple[int, bool]:
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


def owner_of(producer: str) -> str:
    """The identity of the process that a producer belongs to: what stands before a `#`, which sets its calls apart."""
    return producer.partition("#")[0]


class ChannelsState:
    """Every channel of a run. `handle` is the only way in; `log`, when kept, replays to the same instructions."""

    def __init__(self, keep_log: bool = False) -> None:
        self.channels: dict[str, Channel] = {}
        self.cancelled: str | None = None
        self.log: list[Event] | None = [] if keep_log else None
        self._identities: dict[int, str] = {}
        self._handlers: dict[type, Callable[[Any], Iterable[Instruction]]] = {
            Join: self._join, Gone: self._gone, Create: self._create, Put: self._put, Withdraw: self._withdraw,
            Get: self._get, Cancel: self._cancel, Declare: self._declare, Done: self._done, Close: self._close,
            Drop: self._drop, CancelAll: self._cancel_all,
        }  # fmt: skip

    def handle(self, event: Event) -> list[Instruction]:
        if self.log is not None:
            self.log.append(event)
        return list(self._handlers[type(event)](event))

    def waiting(self, name: str) -> int:
        """Items accepted and not yet delivered."""
        channel = self.channels.get(name)
        return channel.count if channel else 0

    def _channel(self, name: str) -> Channel:
        channel = self.channels.get(name)
        if channel is None:
            channel = self.channels[name] = Channel(name, broken=self.cancelled)
        return channel

    # ---- items ----

    def _put(self, event: Put) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        channel.tally.put += len(event.items)
        if channel.broken is not None or channel.closed:
            kind, message = _ended(channel)
            channel.tally.dropped[message] += len(event.items)
            yield Refuse(event.client, event.channel, tuple(item.number for item in event.items), kind, message)
            yield Release(event.items, message)
            return
        channel.offered.extend(event.items)
        yield from self._pump(channel)

    def _get(self, event: Get) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        if channel.broken is not None:
            yield Fail(event.client, event.request, "broken", channel.broken)
            return
        n, answer = channel.share(event)
        if answer:
            yield _answer(channel, event, n)
        else:
            channel.gets.setdefault(event.key, {})[event.client, event.request] = event
        yield from self._pump(channel)

    def _pump(self, channel: Channel) -> Iterator[Instruction]:
        """Accept what there is room for and serve who can be served, until neither is possible."""
        while channel.offered and channel.has_room(channel.offered[0]):
            accepted: Counter[int] = Counter()
            keys: dict[Key, None] = {}
            while channel.offered and channel.has_room(channel.offered[0]):
                item = channel.offered.popleft()
                channel.add(item)
                accepted[item.producer] += 1
                keys[item.key] = None
            for client, count in accepted.items():
                yield Accept(client, channel.name, count, channel.capacity)
            for key in list(channel.gets) if channel.drained else keys:
                yield from self._serve(channel, key)

    def _serve(self, channel: Channel, key: Key) -> Iterator[Instruction]:
        """Answer the waiting gets of one key that can be answered."""
        gets = channel.gets.get(key, {})
        for get in list(gets.values()):
            if key not in channel.waiting and not channel.drained:
                break
            n, answer = channel.share(get)
            if answer:
                del gets[get.client, get.request]
                yield _answer(channel, get, n)
        if not gets:
            channel.gets.pop(key, None)

    def _withdraw(self, event: Withdraw) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        mine = tuple(item for item in channel.offered
                     if item.producer == event.client and event.first <= item.number <= event.last)
        if mine:
            channel.offered = deque(item for item in channel.offered if item not in mine)
            channel.tally.dropped["withdrawn"] += len(mine)
            yield Release(mine, "withdrawn")
        yield Confirm(event.client, event.request, tuple(item.number for item in mine))
        yield from self._pump(channel)
        yield from self._finish(channel)

    def _cancel(self, event: Cancel) -> Iterator[Instruction]:
        channel = self.channels.get(event.channel)
        for key, gets in list(channel.gets.items()) if channel else ():
            if gets.pop((event.client, event.request), None):
                yield Fail(event.client, event.request, "timeout", f"nothing came from channel '{event.channel}'")
            if not gets and channel:
                del channel.gets[key]

    # ---- life of a channel ----

    def _create(self, event: Create) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        options = (event.capacity, event.capacity_bytes)
        if options == (channel.capacity, channel.capacity_bytes):
            yield Confirm(event.client, event.request, 0)
        elif channel.tally.put:
            held = f"{channel.capacity} items, {channel.capacity_bytes} bytes"
            message = f"channel '{event.channel}' is in use with capacity {held}: create it before the first put"
            yield Fail(event.client, event.request, "refused", message)
        else:
            channel.capacity, channel.capacity_bytes = options
            yield Confirm(event.client, event.request, 0)

    def _declare(self, event: Declare) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        if channel.closed:
            message = f"channel '{event.channel}' is closed: it takes no producer"
            yield Fail(event.client, event.request, "closed", message)
            return
        channel.unfinished |= set(event.producers) - channel.finished
        yield Confirm(event.client, event.request, 0)

    def _done(self, event: Done) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        if event.producer not in channel.unfinished | channel.finished:
            message = f"'{event.producer}' was not declared as a producer of channel '{event.channel}'"
            yield Fail(event.client, event.request, "refused", message)
            return
        yield Confirm(event.client, event.request, 0)
        channel.unfinished.discard(event.producer)
        channel.finished.add(event.producer)
        if event.error is not None:
            yield from self._break(channel, event.error)
        elif not channel.unfinished:
            channel.closed = True
            yield from self._finish(channel)

    def _close(self, event: Close) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        channel.closed = True
        yield Confirm(event.client, event.request, 0)
        yield from self._finish(channel)

    def _finish(self, channel: Channel) -> Iterator[Instruction]:
        if channel.drained:
            for key in list(channel.gets):
                yield from self._serve(channel, key)

    def _drop(self, event: Drop) -> Iterator[Instruction]:
        channel = self.channels.pop(event.channel, None)
        discarded = channel.count + len(channel.offered) if channel else 0
        yield Confirm(event.client, event.request, discarded)
        if channel:
            yield from self._end(channel, "closed", f"channel '{event.channel}' was dropped")

    def _break(self, channel: Channel, reason: str) -> Iterator[Instruction]:
        if channel.broken is None:
            channel.broken = reason
            yield from self._end(channel, "broken", reason)

    def _end(self, channel: Channel, kind: ErrorKind, message: str) -> Iterator[Instruction]:
        """Discard all items and fail all gets."""
        refused: dict[int, list[int]] = {}
        for item in channel.offered:
            refused.setdefault(item.producer, []).append(item.number)
        for client, numbers in refused.items():
            yield Refuse(client, channel.name, tuple(numbers), kind, message)
        items = channel.clear(message)
        if items:
            yield Release(items, message)
        for gets in channel.gets.values():
            for get in gets.values():
                yield Fail(get.client, get.request, kind, message)
        channel.gets.clear()

    # ---- clients ----

    def _join(self, event: Join) -> Iterable[Instruction]:
        self._identities[event.client] = event.identity
        return ()

    def _gone(self, event: Gone) -> Iterator[Instruction]:
        identity = self._identities.pop(event.client)
        for channel in self.channels.values():
            channel.forget_gets(event.client)
            if any(owner_of(producer) == identity for producer in channel.unfinished):
                yield from self._break(channel, f"{identity} {event.how}")

    def _cancel_all(self, event: CancelAll) -> Iterator[Instruction]:
        self.cancelled = event.reason
        for channel in self.channels.values():
            yield from self._break(channel, event.reason)

    # ---- checks ----

    def validate(self) -> None:
        """Assert what must hold between two events."""
        for channel in self.channels.values():
            _validate(channel)
            assert self.cancelled is None or channel.broken is not None


def _answer(channel: Channel, get: Get, n: int) -> Instruction:
    if not n and channel.drained:
        return Fail(get.client, get.request, "closed", f"channel '{channel.name}' is closed and empty")
    return Deliver(get.client, get.request, channel.take(get.key, n) if n else ())


def _ended(channel: Channel) -> tuple[ErrorKind, str]:
    if channel.broken is not None:
        return "broken", channel.broken
    return "closed", f"channel '{channel.name}' is closed and takes nothing more"


def _validate(channel: Channel) -> None:
    queued = [item for queue in channel.waiting.values() for item in queue]
    tally = channel.tally
    assert channel.count == len(queued)
    assert channel.size == sum(item.size for item in queued)
    assert tally.put == tally.delivered + channel.count + len(channel.offered) + sum(tally.dropped.values())
    assert all(channel.waiting.values()), "an empty queue was kept"
    assert all(channel.gets.values()), "an empty list of gets was kept"
    assert not channel.offered or not channel.has_room(channel.offered[0]), "room for an item that is kept out"
    for gets in channel.gets.values():
        for get in gets.values():
            assert not channel.share(get)[1], "a get waits that could be answered"
    assert channel.broken is None or not (queued or channel.offered or channel.gets)
    assert not channel.drained or not channel.gets

"""All channels as one pure state machine: events in, instructions out; no sockets, no clock, no payload is read.

An item is put by a client, waits until a get asks for it, and is delivered once. A bounded channel accepts only as
many items as it may hold; one for which there is no room is kept as *offered* until there is. Capacity bounds what
waits *beyond* what waiting gets ask for, so that a get of at least 8 items ends on a channel of capacity 2.

Order: first in, first out for each key. An item with a key goes only to a get with that key, one without only to a get
without. Waiting gets are served in order of arrival, but one that asks for more than there is holds nobody up, and of
those that lease the client with the least leased weight comes first.

A *leased* item stays the channel's until its lease ends: by `Settle`, or in the moment in which the channel that its result
is put into accepts the result. When the client is lost before, or gives it back, the item waits again, in its old place.
While a lease is open a closed channel has not ended, but gets that find something take it. A result that is offered when
its client is lost counts: its lease stays open, nobody's, until the result is accepted, or will never be.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rlinf_cli.state.channel_events import (
    Accept,
    Break,
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
    GiveBack,
    Gone,
    Instruction,
    Item,
    Join,
    Key,
    LeaseId,
    Lend,
    Limit,
    Put,
    Refuse,
    Release,
    Settle,
    TellFull,
    Withdraw,
)
from rlinf_cli.state.channel_queue import NOBODY, Channel


def owner_of(producer: str) -> str:
    """The identity of the process that a producer belongs to: what stands before a `#`, which sets its calls apart."""
    return producer.partition("#")[0]


def belongs(producer: str, identity: str) -> bool:
    """Whether a producer belongs to a process; one that several roles share is called by all their names, joined by `+`."""
    return owner_of(producer) in identity.split("+")


class ChannelsState:
    """Every channel of a run. `handle` is the only way in; `log`, when kept, replays to the same instructions."""

    def __init__(self, keep_log: bool = False) -> None:
        self.channels: dict[str, Channel] = {}
        self.cancelled: str | None = None
        self.log: list[Event] | None = [] if keep_log else None
        self._identities: dict[int, str] = {}
        self._lease_numbers = itertools.count(1)
        self._handlers: dict[type, Callable[[Any], Iterable[Instruction]]] = {
            Join: self._join, Gone: self._gone, Create: self._create, Put: self._put, Withdraw: self._withdraw,
            Get: self._get, Settle: self._settle, GiveBack: self._give_back, Cancel: self._cancel, Declare: self._declare,
            Done: self._done, Close: self._close,
            Break: self._break_off, Limit: self._limit, Drop: self._drop, CancelAll: self._cancel_all,
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
        channel.tally.puts[self._identities[event.client]] += len(event.items)
        if channel.broken is not None or channel.closed:
            kind, message = _ended(channel)
            channel.tally.dropped[message] += len(event.items)
            yield Refuse(event.client, event.channel, _numbers(event.items), kind, message)
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
            yield self._answer(channel, event, n)
        else:
            channel.gets.setdefault(event.key, {})[event.client, event.request] = event
        yield from self._pump(channel)

    def _answer(self, channel: Channel, get: Get, n: int) -> Instruction:
        if not n and channel.drained(get.key):
            return Fail(get.client, get.request, "closed", f"channel '{channel.name}' is closed and empty")
        channel.tally.takes[self._identities[get.client]] += n
        if not get.lease:
            return Deliver(get.client, get.request, channel.take(get.key, n))
        numbers = tuple(itertools.islice(self._lease_numbers, n))
        return Lend(get.client, get.request, channel.name, channel.lend(get.key, n, get.client, numbers), numbers)

    def _pump(self, channel: Channel) -> Iterator[Instruction]:
        """Accept what there is room for and serve who can be served, until neither is possible."""
        while channel.offered and channel.has_room(channel.offered[0]):
            accepted: Counter[int] = Counter()
            keys: dict[Key, None] = {}
            settled: list[tuple[int, LeaseId]] = []
            while channel.offered and channel.has_room(channel.offered[0]):
                item = channel.offered.popleft()
                channel.add(item)
                accepted[item.producer] += 1
                keys[item.key] = None
                if item.settles:
                    settled += [(item.producer, lease) for lease in item.settles]
                if item.key in channel.gets and channel.weighed(item.key):
                    break  # it may be served now, with less than it asks for: what it leaves has no claim to room
            for client, count in accepted.items():
                yield Accept(client, channel.name, count, channel.capacity)
            if settled:
                yield from self._end_leases(settled)
            if channel.full:
                yield from self._fill(channel)
            for key in list(channel.gets) if channel.ending else keys:
                yield from self._serve(channel, key)

    def _serve(self, channel: Channel, key: Key) -> Iterator[Instruction]:
        """Answer the waiting gets of one key that can be answered."""
        while (found := channel.next_get(key)) is not None:
            get, n = found
            channel.forget_get(get)
            yield self._answer(channel, get, n)

    def _withdraw(self, event: Withdraw) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        mine = tuple(item for item in channel.offered
                     if item.producer == event.client and event.first <= item.number <= event.last)
        if mine:
            channel.offered = deque(item for item in channel.offered if item not in mine)
            channel.tally.dropped["withdrawn"] += len(mine)
            yield Release(mine, "withdrawn")
        yield Confirm(event.client, event.request, _numbers(mine))
        yield from self._refused(mine)
        yield from self._pump(channel)
        yield from self._finish(channel)

    def _cancel(self, event: Cancel) -> Iterator[Instruction]:
        channel = self.channels.get(event.channel)
        for get in channel.gets_of(event.client) if channel else ():
            if channel and get.request == event.request:
                channel.forget_get(get)
                yield Fail(event.client, event.request, "timeout", f"nothing came from channel '{event.channel}'")

    # ---- leases ----

    def _settle(self, event: Settle) -> Iterable[Instruction]:
        return self._end_leases((event.client, LeaseId(event.channel, number)) for number in event.leases)

    def _end_leases(self, leases: Iterable[tuple[int, LeaseId]]) -> Iterator[Instruction]:
        """Leases, each with the client that has settled it."""
        ended: dict[str, list[Item]] = {}
        for client, (name, number) in leases:
            channel = self.channels.get(name)
            lease = channel.leased.get(number) if channel else None
            if channel and lease and lease.client in (client, NOBODY):
                ended.setdefault(name, []).append(channel.settle(number))
        for name, items in ended.items():
            yield Release(tuple(items), "settled")
            yield from self._finish(self.channels[name])

    def _give_back(self, event: GiveBack) -> Iterator[Instruction]:
        channel = self.channels.get(event.channel)
        if channel:
            yield from self._return(channel, channel.part_with(event.client, self._promised(event.client), event.leases))

    def _return(self, channel: Channel, numbers: Iterable[int]) -> Iterator[Instruction]:
        """End leases without a result."""
        for key in dict.fromkeys([channel.put_back(number).key for number in numbers]):
            yield from self._serve(channel, key)
        yield from self._pump(channel)

    def _promised(self, client: int) -> set[LeaseId]:
        """Leases of the client whose results are offered."""
        return {lease for channel in self.channels.values() for item in channel.offered if item.producer == client
                for lease in item.settles}

    def _refused(self, items: Iterable[Item]) -> Iterator[Instruction]:
        """Offered items will not be accepted: what they were to settle and is nobody's waits again."""
        for name, number in [lease for item in items for lease in item.settles]:
            channel = self.channels.get(name)
            if channel and number in channel.leased and channel.leased[number].client == NOBODY:
                yield from self._return(channel, (number,))

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
        named = set(event.producers)
        channel.unfinished |= named - channel.finished
        channel.guarded = channel.guarded | named if event.guarded else channel.guarded - named
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
        if channel.ending:
            for key in list(channel.gets):
                yield from self._serve(channel, key)

    def _limit(self, event: Limit) -> Iterator[Instruction]:
        channel = self._channel(event.channel)
        channel.limit = event.count
        yield Confirm(event.client, event.request, 0)
        if channel.full and channel.broken is None:
            yield from self._fill(channel)
            yield from self._finish(channel)

    def _fill(self, channel: Channel) -> Iterator[Instruction]:
        """The channel has all that it takes."""
        if not channel.closed or channel.offered:
            channel.closed = True
            surplus, channel.offered = tuple(channel.offered), deque()
            kind, message = _ended(channel)
            channel.tally.dropped[message] += len(surplus)
            yield from _refuse(channel, surplus, kind, message)
            if surplus:
                yield Release(surplus, message)
            yield from self._refused(surplus)
        for client, identity in self._identities.items():
            yield from self._tell_full(channel, client, identity)

    def _tell_full(self, channel: Channel, client: int, identity: str) -> Iterator[Instruction]:
        if client not in channel.told and any(belongs(producer, identity) for producer in channel.unfinished):
            channel.told.append(client)
            yield TellFull(client, channel.name, True)

    def _drop(self, event: Drop) -> Iterator[Instruction]:
        channel = self.channels.pop(event.channel, None)
        discarded = channel.count + len(channel.offered) + len(channel.leased) if channel else 0
        yield Confirm(event.client, event.request, discarded)
        if channel:
            yield from self._end(channel, "closed", f"channel '{event.channel}' was dropped")
            for client in channel.told:
                yield TellFull(client, channel.name, False)

    def _break_off(self, event: Break) -> Iterator[Instruction]:
        yield Confirm(event.client, event.request, 0)
        yield from self._break(self._channel(event.channel), event.reason)

    def _break(self, channel: Channel, reason: str) -> Iterator[Instruction]:
        if channel.broken is None:
            channel.broken = reason
            yield from self._end(channel, "broken", reason)

    def _end(self, channel: Channel, kind: ErrorKind, message: str) -> Iterator[Instruction]:
        """Discard all items and fail all gets."""
        offered = tuple(channel.offered)
        yield from _refuse(channel, offered, kind, message)
        items = channel.clear(message)
        if items:
            yield Release(items, message)
        for gets in channel.gets.values():
            for get in gets.values():
                yield Fail(get.client, get.request, kind, message)
        channel.gets.clear()
        yield from self._refused(offered)

    # ---- clients ----

    def _join(self, event: Join) -> Iterator[Instruction]:
        self._identities[event.client] = event.identity
        for channel in self.channels.values():
            if channel.full and channel.broken is None:
                yield from self._tell_full(channel, event.client, event.identity)

    def _gone(self, event: Gone) -> Iterator[Instruction]:
        identity = self._identities.pop(event.client)
        for channel in self.channels.values():
            for get in channel.gets_of(event.client):
                channel.forget_get(get)
            if event.client in channel.told:
                channel.told.remove(event.client)
        promised = self._promised(event.client)
        left = [(channel, channel.part_with(event.client, promised)) for channel in self.channels.values()]
        for channel, numbers in left:
            if numbers:
                yield from self._return(channel, numbers)
        for channel in self.channels.values():
            if not channel.full and any(belongs(producer, identity) for producer in channel.unfinished - channel.guarded):
                yield from self._break(channel, f"{identity} {event.how}")

    def _cancel_all(self, event: CancelAll) -> Iterator[Instruction]:
        self.cancelled = event.reason
        for channel in self.channels.values():
            yield from self._break(channel, event.reason)

    # ---- checks ----

    def validate(self) -> None:
        """Assert what must hold between two events."""
        promised = {lease for channel in self.channels.values() for item in channel.offered for lease in item.settles}
        for channel in self.channels.values():
            channel.validate()
            assert self.cancelled is None or channel.broken is not None
            for number, lease in channel.leased.items():
                assert lease.client in self._identities or LeaseId(channel.name, number) in promised, "a lease is nobody's"


def _ended(channel: Channel) -> tuple[ErrorKind, str]:
    if channel.broken is not None:
        return "broken", channel.broken
    if channel.full:
        return "full", f"channel '{channel.name}' has accepted all the {channel.limit} items that it was to take"
    return "closed", f"channel '{channel.name}' is closed and takes nothing more"


def _refuse(channel: Channel, items: Iterable[Item], kind: ErrorKind, message: str) -> Iterator[Instruction]:
    refused: dict[int, list[Item]] = {}
    for item in items:
        refused.setdefault(item.producer, []).append(item)
    for client, theirs in refused.items():
        yield Refuse(client, channel.name, _numbers(theirs), kind, message)


def _numbers(items: Iterable[Item]) -> tuple[int, ...]:
    return tuple(item.number for item in items)

"""Who computes on shared devices, as a pure state machine: events in, instructions out; no processes, no clock.

A *group* is a role with its ranks and their devices; two groups *conflict* when they have a device in common. The program
issues calls that need the devices, each with a *ticket*, and each rank asks when it begins the call. A group gets all of its
devices or none, for a ticket before which no conflicting one is still to be finished. While it holds them all its tickets
that are not behind a conflicting one run. It stays loaded when it has let go, and makes room when another one is next.

Order: that of the program, in which a consumer comes after its producers, so that it gets the devices only when the
producers that it conflicts with are done, and all its data is there or on its way. Where the program issues a consumer first,
- a ticket moves behind those that produce what it takes, be it by way of calls without tickets (`Derive`), and behind what
  must run before those;
- a ticket whose input nobody feeds yet waits for that, together with the ones that depend on it, and holds nobody up.
So the first ticket in the order can always run, and what runs only waits for what is before it, or needs no device of it.

A process that dies frees what it held. Its ticket remains unfinished: the call runs again in the next process of the same
rank, unless the rank is retired or its group dismissed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.state.device_lock_events import (
    Ask,
    Derive,
    Dismiss,
    Dropped,
    Enqueue,
    Enrol,
    Enter,
    Event,
    Fed,
    Gone,
    Grant,
    Instruction,
    Offload,
    Offloaded,
    Release,
    Retire,
    Retract,
)


@dataclass(slots=True)
class Group:
    """A role that shares devices, or might."""

    name: str
    ranks: dict[int, frozenset[int]]
    shares: str
    dismissed: bool = False

    @property
    def devices(self) -> frozenset[int]:
        return frozenset().union(*self.ranks.values())


@dataclass(slots=True)
class Presence:
    """A rank's process."""

    client: int
    group: str
    rank: int
    loaded: bool = True
    room_for: Ticket | None = None
    """It is making room for that one."""
    dismissed: bool = False


@dataclass(slots=True, eq=False)
class Ticket:
    """A call under way; finished, and forgotten, when all its ranks have let go."""

    number: int
    group: str
    unfinished: set[int]
    ins: Sequence[str] = ()
    outs: frozenset[str] = frozenset()
    asks: dict[int, Ask] = field(default_factory=dict)
    running: dict[int, int] = field(default_factory=dict)
    """Rank -> client."""
    started: bool = False
    switch_s: float = 0.0
    """Others needed so long to make room for it."""

    def clients(self, rank: int) -> set[int]:
        """The process that runs it on a rank, or wants to."""
        asks = {self.asks[rank].client} if rank in self.asks else set()
        return asks | ({self.running[rank]} if rank in self.running else set())


class DeviceLockState:
    """The devices of a run. `handle` is the only way in."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.present: dict[tuple[int, str], Presence] = {}
        self.tickets: list[Ticket] = []
        """The unfinished ones, in the order in which conflicting ones run."""
        self._stuck: list[Ticket] = []
        self._early: dict[int, list[Ask]] = {}
        self._latest = 0
        self._made_of: dict[str, set[str]] = {}
        self._fed: set[str] = set()
        self._handlers: dict[type, Callable[[Any], Iterable[Instruction]]] = {
            Enrol: self._enrol, Dismiss: self._dismiss, Retire: self._retire, Enqueue: self._enqueue,
            Retract: self._retract, Derive: self._derive, Enter: self._enter, Ask: self._ask, Release: self._release,
            Offloaded: self._offloaded, Fed: self._feed, Dropped: self._drop, Gone: self._gone,
        }  # fmt: skip

    def handle(self, event: Event) -> list[Instruction]:
        return list(self._handlers[type(event)](event))

    def knows(self, channel: str) -> bool:
        """Whether the channel is fed, as far as has been told."""
        return channel in self._fed

    # ---- groups and their processes ----

    def _enrol(self, event: Enrol) -> Iterable[Instruction]:
        ranks = {rank: frozenset(devices) for rank, devices in event.devices.items()}
        self.groups[event.group] = Group(event.group, ranks, event.shares)
        return self._pump()

    def _dismiss(self, event: Dismiss) -> Iterable[Instruction]:
        self.groups[event.group].dismissed = True
        self.tickets = [ticket for ticket in self.tickets if ticket.group != event.group]
        for presence in self._of(event.group):
            presence.dismissed = True  # loaded, until its process is gone
        self._bury(event.group)
        return self._pump()

    def _retire(self, event: Retire) -> Iterable[Instruction]:
        self.groups[event.group].ranks.pop(event.rank, None)
        for ticket in self._tickets_of(event.group):
            self._done(ticket, event.rank)
        return self._pump()

    def _enter(self, event: Enter) -> Iterable[Instruction]:
        for ticket in self._tickets_of(event.group):
            ticket.asks.pop(event.rank, None)
            ticket.running.pop(event.rank, None)
        self.present[event.client, event.group] = Presence(event.client, event.group, event.rank)
        return self._pump()

    def _gone(self, event: Gone) -> Iterable[Instruction]:
        gone = [one for one in self.present.values() if one.client == event.client]
        for one in gone:
            del self.present[one.client, one.group]
            self._bury(one.group)
        for ticket in self.tickets:
            ticket.asks = {rank: ask for rank, ask in ticket.asks.items() if ask.client != event.client}
            ticket.running = {rank: client for rank, client in ticket.running.items() if client != event.client}
        self._early = {number: kept for number, asks in self._early.items()
                       if (kept := [ask for ask in asks if ask.client != event.client])}
        return self._pump() if gone else ()

    def _bury(self, name: str) -> None:
        group = self.groups.get(name)
        if group is not None and group.dismissed and not self._of(name):
            del self.groups[name]

    def _of(self, group: str) -> list[Presence]:
        return [one for one in self.present.values() if one.group == group]

    def _tickets_of(self, group: str) -> list[Ticket]:
        return [ticket for ticket in self.tickets if ticket.group == group]

    # ---- tickets ----

    def _enqueue(self, event: Enqueue) -> Iterable[Instruction]:
        self._latest = event.ticket
        self._fed.update(event.outs)
        ticket = Ticket(event.ticket, event.group, set(event.ranks), event.ins, frozenset(event.outs))
        ticket.asks = {ask.rank: ask for ask in self._early.pop(event.ticket, ())}
        self.tickets.append(ticket)
        return self._rearrange(ticket.outs)

    def _retract(self, event: Retract) -> Iterable[Instruction]:
        self.tickets = [ticket for ticket in self.tickets if ticket.number != event.ticket]
        return self._pump()

    def _ask(self, event: Ask) -> Iterable[Instruction]:
        if self.present[event.client, event.group].dismissed:
            return ()  # its process is about to end
        if event.ticket > self._latest:
            self._early.setdefault(event.ticket, []).append(event)
            return ()
        ticket = self._ticket(event.ticket) or self._again(event)
        ticket.unfinished.add(event.rank)
        ticket.asks[event.rank] = event
        return self._pump()

    def _again(self, event: Ask) -> Ticket:
        """Its process has died, after it had let go and before it could answer the call."""
        ticket = Ticket(event.ticket, event.group, set())
        self.tickets.append(ticket)
        self._sort()
        return ticket

    def _release(self, event: Release) -> Iterable[Instruction]:
        early = self._early.pop(event.ticket, [])
        if left := [ask for ask in early if ask.client != event.client]:
            self._early[event.ticket] = left
        ticket = self._ticket(event.ticket)
        if ticket is None or event.client not in ticket.clients(event.rank):  # or its place has been taken
            return ()
        self._done(ticket, event.rank)
        return self._pump()

    def _ticket(self, number: int) -> Ticket | None:
        return next((ticket for ticket in self.tickets if ticket.number == number), None)

    def _done(self, ticket: Ticket, rank: int) -> None:
        ticket.asks.pop(rank, None)
        ticket.running.pop(rank, None)
        ticket.unfinished.discard(rank)
        if not ticket.unfinished:
            self.tickets.remove(ticket)

    # ---- order ----

    def _derive(self, event: Derive) -> Iterable[Instruction]:
        for channel in event.outs:
            self._made_of.setdefault(channel, set()).update(event.ins)
        return self._rearrange(event.outs)

    def _feed(self, event: Fed) -> Iterable[Instruction]:
        self._fed.add(event.channel)
        return self._pump()

    def _drop(self, event: Dropped) -> Iterable[Instruction]:
        self._fed.discard(event.channel)
        self._made_of.pop(event.channel, None)
        return ()

    def _rearrange(self, channels: Iterable[str]) -> Iterable[Instruction]:
        """Something is known of these channels now that was not known before."""
        news = set(channels)
        if any(not ticket.started and news & self._sources(ticket) for ticket in self.tickets):
            self._sort()
        return self._pump()

    def _sources(self, ticket: Ticket) -> set[str]:
        """The channels that it takes from, and those that their items are made of."""
        found: set[str] = set()
        left = list(ticket.ins)
        while left:
            channel = left.pop()
            if channel not in found:
                found.add(channel)
                left += self._made_of.get(channel, ())
        return found

    def _sort(self) -> None:
        """By number, but for what must be before."""
        left = sorted(self.tickets, key=lambda ticket: ticket.number)
        needs = {ticket: self._needs(ticket) for ticket in left}
        self.tickets = []
        while left:
            # a circle has no order, and the program that it comes from no end
            following = next((ticket for ticket in left if needs[ticket].isdisjoint(left)), left[0])
            left.remove(following)
            self.tickets.append(following)

    def _needs(self, ticket: Ticket) -> set[Ticket]:
        """What must be before it: producers; until it begins, calls of the same process, and who has the devices."""
        sources = self._sources(ticket)
        begins = bool(ticket.asks) or ticket.started
        return {other for other in self.tickets if other is not ticket and (
            not sources.isdisjoint(other.outs)
            or (not begins and other.group == ticket.group and other.number < ticket.number)
            or (not ticket.started and other.started and self._conflict(other.group, ticket.group)))}

    def _is_stuck(self, ticket: Ticket, stuck: Sequence[Ticket]) -> bool:
        """Whether what it takes, or what is before it, is not fed by anybody yet. `stuck`: those before it that are."""
        if ticket.started:
            return False
        sources = self._sources(ticket)
        return not sources <= self._fed | self._made_of.keys() or any(
            not sources.isdisjoint(other.outs) or (other.group == ticket.group and not ticket.asks) for other in stuck)

    # ---- devices ----

    def _pump(self) -> Iterator[Instruction]:
        """Let run what can, and have room made for what is next."""
        if self._stuck:
            self._sort()  # they held nobody up, so that others may have begun that were behind them
        ahead: list[Ticket] = []
        stuck: list[Ticket] = []
        for ticket in list(self.tickets):
            if self._is_stuck(ticket, stuck):
                stuck.append(ticket)
                continue
            if ticket.running or (ticket.asks and self._is_next(ticket, ahead)):
                yield from self._advance(ticket)
            ahead.append(ticket)
        self._stuck = stuck

    def _is_next(self, ticket: Ticket, ahead: Sequence[Ticket]) -> bool:
        holders = (other for other in self.tickets if other.running)
        return not any(self._conflict(other.group, ticket.group) for other in (*ahead, *holders))

    def _advance(self, ticket: Ticket) -> Iterator[Instruction]:
        rivals = self._rivals(ticket.group)
        for rival in rivals:
            if rival.room_for is None:
                rival.room_for = ticket
                yield Offload(rival.client, rival.group)
        if not rivals and all(one.room_for is None for one in self._of(ticket.group)):
            for ask in ticket.asks.values():
                yield self._grant(ticket, ask)
            ticket.asks.clear()

    def _grant(self, ticket: Ticket, ask: Ask) -> Grant:
        presence = self.present[ask.client, ask.group]
        onload, presence.loaded = not presence.loaded, True
        ticket.running[ask.rank] = ask.client
        ticket.started = True
        return Grant(ask.client, ask.request, onload, ticket.switch_s)

    def _rivals(self, group: str) -> list[Presence]:
        """The processes that must make room before the group computes."""
        shares = self.groups[group].shares
        return [one for one in self.present.values()
                if one.loaded and self._conflict(one.group, group) and self.groups[one.group].shares != shares]

    def _offloaded(self, event: Offloaded) -> Iterable[Instruction]:
        presence = self.present[event.client, event.group]
        ticket, presence.loaded, presence.room_for = presence.room_for, False, None
        if ticket is not None:
            ticket.switch_s = max(ticket.switch_s, event.seconds)
        return self._pump()

    def _conflict(self, one: str, other: str) -> bool:
        if one == other or one not in self.groups or other not in self.groups:
            return False
        return not self.groups[one].devices.isdisjoint(self.groups[other].devices)

    # ---- checks ----

    def validate(self) -> None:
        """Assert what must hold between two events."""
        holders = [ticket for ticket in self.tickets if ticket.running]
        for ticket in self.tickets:
            _validate(ticket)
            assert not self.groups[ticket.group].dismissed
            assert ticket.number <= self._latest
        for ticket in holders:
            assert not any(self._conflict(ticket.group, other.group) for other in holders), "a device is held by two groups"
            for rank, client in ticket.running.items():
                presence = self.present[client, ticket.group]
                assert presence.rank == rank
                assert presence.loaded, "it runs without what it needs"
                assert presence.room_for is None, "it is to make room while it runs"
            for rival in self._rivals(ticket.group):
                assert rival.room_for is not None, "something is in the way of who holds the devices"
        for presence in self.present.values():
            assert presence.loaded or presence.room_for is None


def _validate(ticket: Ticket) -> None:
    assert ticket.unfinished, "a finished ticket was kept"
    assert set(ticket.asks) | set(ticket.running) <= ticket.unfinished
    assert not set(ticket.asks) & set(ticket.running), "a rank that runs asks"
    assert ticket.started or not ticket.running

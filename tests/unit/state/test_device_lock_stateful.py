"""Random histories of the device lock, whatever the program means by them: groups come and go, ranks die, are retired and take
each other's place; what must hold holds after each event."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlinf_cli.state.device_lock import DeviceLockState
from rlinf_cli.state.device_lock_events import (
    Ask,
    Derive,
    Dismiss,
    Dropped,
    Enqueue,
    Enrol,
    Enter,
    Fed,
    Gone,
    Grant,
    Offload,
    Offloaded,
    Release,
    Retire,
    Retract,
)

DRIVER = 0
groups = st.sampled_from(["a", "b", "c"])
channels = st.lists(st.sampled_from(["x", "y", "z"]), max_size=2, unique=True).map(tuple)
devices = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(tuple)


class Lock(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.state = DeviceLockState()
        self.numbers, self.tickets, self.requests = itertools.count(1), itertools.count(1), itertools.count(1)
        self.clients = {}
        """Of each group: of each rank the process that is there, or None."""
        self.lingering = {}
        """Processes that have a successor: their group."""
        self.calls = {}
        """Ticket: its group."""
        self.asked = {}
        """Ticket and client: request, until it is answered."""
        self.held = {}
        """Ticket and client: rank."""
        self.offloads = set()

    def handle(self, event):
        for instruction in self.state.handle(event):
            match instruction:
                case Grant(client, request, _, _):
                    [key] = [key for key, asked in self.asked.items() if asked == request]
                    del self.asked[key]
                    assert key[1] == client
                    assert client in self.clients[self.calls[key[0]]].values(), "granted to a process that is gone or replaced"
                    assert key not in self.held, "granted twice"
                    self.held[key] = self.rank_of(key[0], client)
                case Offload(client, group):
                    assert (client, group) not in self.offloads, "told twice"
                    self.offloads.add((client, group))

    def rank_of(self, ticket, client):
        return next(rank for rank, other in self.clients[self.calls[ticket]].items() if other == client)

    def forget(self, client):
        for kept in (self.asked, self.held):
            for key in [key for key in kept if key[1] == client]:
                del kept[key]

    @precondition(lambda self: len(self.clients) < 3)
    @rule(group=groups, ranks=st.lists(devices, min_size=1, max_size=2), shares=st.sampled_from(["", "one"]))
    def enrol(self, group, ranks, shares):
        if group not in self.clients:
            self.clients[group] = dict.fromkeys(range(len(ranks)))
            self.handle(Enrol(DRIVER, group, dict(enumerate(ranks)), shares or group))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def enter(self, data):
        group = data.draw(st.sampled_from(sorted(self.clients)))
        rank = data.draw(st.sampled_from(sorted(self.clients[group]))) if self.clients[group] else None
        if rank is not None:
            before, self.clients[group][rank] = self.clients[group][rank], next(self.numbers)
            if before is not None:
                self.lingering[before] = group
                self.forget(before)
            self.handle(Enter(self.clients[group][rank], group, rank))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), ins=channels, outs=channels)
    def call(self, data, ins, outs):
        group = data.draw(st.sampled_from(sorted(self.clients)))
        if self.clients[group]:
            ranks = data.draw(st.sets(st.sampled_from(sorted(self.clients[group])), min_size=1))
            ticket = next(self.tickets)
            self.calls[ticket] = group
            self.handle(Enqueue(DRIVER, ticket, group, sorted(ranks), ins, outs))

    @precondition(lambda self: self.state.tickets)
    @rule(data=st.data())
    def ask(self, data):
        ticket = data.draw(st.sampled_from(self.state.tickets))
        free = [rank for rank in ticket.unfinished if self.clients[ticket.group].get(rank)
                and rank not in ticket.asks and rank not in ticket.running]
        if free:
            rank = data.draw(st.sampled_from(sorted(free)))
            client = self.clients[ticket.group][rank]
            self.asked[ticket.number, client] = request = next(self.requests)
            self.handle(Ask(client, request, ticket.number, ticket.group, rank))

    @precondition(lambda self: self.held or self.asked)
    @rule(data=st.data())
    def release(self, data):
        """Or ask no longer."""
        ticket, client = data.draw(st.sampled_from([*self.held, *self.asked]))
        rank = self.rank_of(ticket, client)
        self.held.pop((ticket, client), None)
        self.asked.pop((ticket, client), None)
        self.handle(Release(client, ticket, rank))

    @precondition(lambda self: self.offloads)
    @rule(data=st.data())
    def offloaded(self, data):
        client, group = data.draw(st.sampled_from(sorted(self.offloads)))
        self.offloads.remove((client, group))
        self.handle(Offloaded(client, group, 0, 0.0))

    @rule(data=st.data())
    def die(self, data):
        there = [client for ranks in self.clients.values() for client in ranks.values() if client] + list(self.lingering)
        if there:
            client = data.draw(st.sampled_from(sorted(there)))
            self.lingering.pop(client, None)
            for ranks in self.clients.values():
                ranks.update({rank: None for rank, other in ranks.items() if other == client})
            self.forget(client)
            self.offloads = {offload for offload in self.offloads if offload[0] != client}
            self.handle(Gone(client, "died"))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def retire(self, data):
        """A dead rank, for good."""
        group = data.draw(st.sampled_from(sorted(self.clients)))
        dead = [rank for rank, client in self.clients[group].items() if client is None]
        if dead and len(self.clients[group]) > 1:
            del self.clients[group][dead[0]]
            self.handle(Retire(DRIVER, group, dead[0]))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def dismiss(self, data):
        group = data.draw(st.sampled_from(sorted(self.clients)))
        for client in self.clients.pop(group).values():
            if client is not None:
                self.lingering[client] = group
                self.forget(client)
        self.handle(Dismiss(DRIVER, group))

    @precondition(lambda self: self.state.tickets)
    @rule(data=st.data())
    def retract(self, data):
        ticket = data.draw(st.sampled_from(self.state.tickets))
        if not ticket.asks and not ticket.started:
            self.handle(Retract(DRIVER, ticket.number))

    @rule(channel=st.sampled_from(["x", "y", "z"]))
    def feed(self, channel):
        self.handle(Fed(channel))

    @rule(ins=channels, outs=channels)
    def derive(self, ins, outs):
        self.handle(Derive(DRIVER, ins, outs))

    @rule(channel=st.sampled_from(["x", "y", "z"]))
    def drop(self, channel):
        self.handle(Dropped(channel))

    @invariant()
    def valid(self):
        self.state.validate()

    @invariant()
    def who_is_told_is_there(self):
        known = {(one.client, one.group) for one in self.state.present.values() if one.room_for is not None}
        assert known == self.offloads

    @invariant()
    def what_runs_is_known(self):
        running = {(ticket.number, client): rank for ticket in self.state.tickets for rank, client in ticket.running.items()}
        assert running == self.held

    @invariant()
    def all_ranks_of_a_call_run_or_none(self):
        for ticket in self.state.tickets:
            waits_for_room = any(one.room_for is not None for one in self.state.present.values())
            assert not (ticket.running and ticket.asks) or waits_for_room


Lock.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestLock = Lock.TestCase

"""Who gets the devices, when, and who makes room: one small history after the other."""

from __future__ import annotations

import itertools

import pytest

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


class Devices:
    """The machine with a driver and the processes of roles around it. Answers are lists of what was instructed, as text."""

    def __init__(self, **groups):
        """`rollout=[[0], [1]]`: the devices of each rank."""
        self.state = DeviceLockState()
        self.numbers = itertools.count(1)
        self.clients = {}
        self.names = {}
        self.tickets = itertools.count(1)
        for group, ranks in groups.items():
            self.launch(group, ranks)

    def handle(self, event):
        instructions = self.state.handle(event)
        self.state.validate()
        return [self.text(instruction) for instruction in instructions]

    def text(self, instruction):
        match instruction:
            case Grant(client, request, onload, _):
                return f"{self.names[client]} runs {request}{' onload' if onload else ''}"
            case Offload(client, _):
                return f"{self.names[client]} offload"

    def launch(self, group, ranks, shares="", clients=()):
        self.handle(Enrol(DRIVER, group, dict(enumerate(ranks)), shares or group))
        for rank in range(len(ranks)):
            self.enter(group, rank, clients[rank] if clients else None)

    def enter(self, group, rank=0, client=None):
        client = client or next(self.numbers)
        self.clients[group, rank] = client
        self.names[client] = f"{group}{rank}"
        return self.handle(Enter(client, group, rank))

    def call(self, group, *ranks, ins=(), outs=()):
        """Issue a call, by default to all ranks that there are; its ticket."""
        ticket = next(self.tickets)
        self.issued = self.handle(Enqueue(DRIVER, ticket, group, ranks or self.ranks(group), ins, outs))
        return ticket

    def ranks(self, group):
        return [rank for name, rank in self.clients if name == group]

    def ask(self, ticket, group, rank=0):
        """The request has the number of the ticket."""
        return self.handle(Ask(self.clients[group, rank], ticket, ticket, group, rank))

    def begin(self, group, *ranks, **channels):
        """Issue a call that all its ranks ask for at once; its ticket, and what was instructed."""
        ticket = self.call(group, *ranks, **channels)
        return ticket, [line for rank in ranks or self.ranks(group) for line in self.ask(ticket, group, rank)]

    def end(self, ticket, group, rank=0):
        return self.handle(Release(self.clients[group, rank], ticket, rank))

    def offloaded(self, group, rank=0, freed=0, seconds=0.0):
        return self.handle(Offloaded(self.clients[group, rank], group, freed, seconds))

    def die(self, group, rank=0):
        return self.handle(Gone(self.clients[group, rank], "died"))


@pytest.fixture
def two():
    """Two roles on one device."""
    return Devices(a=[[0]], b=[[0]])


def test_who_is_alone_runs_at_once_when_the_others_have_made_room(two):
    assert two.begin("a") == (1, ["b0 offload"])
    assert two.offloaded("b") == ["a0 runs 1"]


def test_a_role_stays_loaded_until_another_one_is_next(two):
    two.begin("a")
    two.offloaded("b")
    assert two.end(1, "a") == []
    assert two.begin("a") == (2, ["a0 runs 2"])
    assert two.begin("b") == (3, [])
    assert two.end(2, "a") == ["a0 offload"]
    assert two.offloaded("a") == ["b0 runs 3 onload"]


def test_how_long_others_needed_to_make_room_is_told(two):
    two.begin("a")
    event = Offloaded(two.clients["b", 0], "b", 1 << 20, 2.5)
    assert two.state.handle(event) == [Grant(two.clients["a", 0], 1, False, 2.5)]


def test_roles_on_different_devices_do_not_meet():
    devices = Devices(a=[[0]], b=[[1]])
    assert devices.begin("a") == (1, ["a0 runs 1"])
    assert devices.begin("b") == (2, ["b0 runs 2"])


def test_a_group_gets_all_devices_or_none():
    devices = Devices(a=[[0]], b=[[1]], both=[[0], [1]])
    devices.begin("a")
    devices.offloaded("both", 0)
    assert devices.offloaded("both", 1) == ["a0 runs 1"]
    assert devices.begin("both") == (2, [])
    assert devices.begin("b") == (3, []), "device 1 is free, but the call before it needs it"
    assert devices.end(1, "a") == ["a0 offload", "b0 offload"]
    assert devices.offloaded("a") == []
    assert devices.offloaded("b") == ["both0 runs 2 onload", "both1 runs 2 onload"]


def test_a_rank_that_asks_later_than_the_others_runs_with_them():
    """They may wait for it, in a collective operation."""
    devices = Devices(a=[[0], [1]], b=[[0], [1]])
    ticket = devices.call("a")
    assert devices.ask(ticket, "a", 0) == ["b0 offload", "b1 offload"]
    devices.offloaded("b", 0)
    assert devices.offloaded("b", 1) == ["a0 runs 1"]
    devices.begin("b")
    assert devices.ask(ticket, "a", 1) == ["a1 runs 1"]
    assert devices.end(1, "a", 0) == []
    assert devices.end(1, "a", 1) == ["a0 offload", "a1 offload"]


def test_the_order_of_the_calls_holds_whoever_asks_first(two):
    first, second = two.call("a"), two.call("b")
    assert two.ask(second, "b") == []
    assert two.ask(first, "a") == ["b0 offload"]
    two.offloaded("b")
    assert two.end(first, "a") == ["a0 offload"]
    assert two.offloaded("a") == ["b0 runs 2 onload"]


def test_a_rank_may_ask_before_the_call_is_known_of(two):
    assert two.ask(1, "a") == []
    two.call("a")
    assert two.issued == ["b0 offload"]
    assert two.offloaded("b") == ["a0 runs 1"]


def test_calls_of_the_same_group_overlap_but_not_across_another_ones(two):
    first, second, between, third = two.call("a"), two.call("a"), two.call("b"), two.call("a")
    two.ask(first, "a")
    assert two.offloaded("b") == ["a0 runs 1"]
    assert two.ask(second, "a") == ["a0 runs 2"]
    assert two.ask(third, "a") == []
    assert two.ask(between, "b") == []
    assert two.end(first, "a") == []
    assert two.end(second, "a") == ["a0 offload"]
    assert two.offloaded("a") == ["b0 runs 3 onload"]
    assert two.end(between, "b") == ["b0 offload"]
    assert two.offloaded("b") == ["a0 runs 4 onload"]


def test_roles_of_the_same_processes_make_no_room_but_take_turns():
    devices = Devices(c=[[0]])
    devices.launch("a", [[0]], "a+b")
    devices.launch("b", [[0]], "a+b", [devices.clients["a", 0]])
    devices.begin("a")
    assert devices.offloaded("c") == [f"{devices.names[devices.clients['a', 0]]} runs 1"]
    assert devices.begin("b") == (2, [])
    assert devices.end(1, "a") == ["b0 runs 2"]
    assert devices.begin("c") == (3, [])
    assert devices.end(2, "b") == ["b0 offload", "b0 offload"], "both of them"
    assert devices.offloaded("a") == []
    assert devices.offloaded("b") == ["c0 runs 3 onload"]


def test_a_call_to_some_ranks_takes_the_devices_of_all():
    devices = Devices(a=[[0], [1]], b=[[0]])
    devices.begin("b")
    devices.offloaded("a", 0)
    assert devices.offloaded("a", 1) == ["b0 runs 1"]
    assert devices.begin("a", 1) == (2, [])
    assert devices.end(1, "b") == ["b0 offload"]
    assert devices.offloaded("b") == ["a1 runs 2 onload"]
    assert devices.end(2, "a", 1) == []
    assert devices.begin("a", 0) == (3, ["a0 runs 3 onload"])


def test_a_call_that_could_not_be_sent_is_in_nobodys_way(two):
    failed, other = two.call("a"), two.call("b")
    assert two.ask(other, "b") == []
    assert two.handle(Retract(DRIVER, failed)) == ["a0 offload"]


# ---- a consumer that is issued first ----


def test_a_consumer_waits_until_somebody_feeds_it(two):
    consumer = two.call("b", ins=["samples"])
    assert two.ask(consumer, "b") == []
    producer, told = two.begin("a", ins=["prompts"], outs=["samples"])
    assert told == []
    assert two.handle(Fed("samples")) == []
    assert two.handle(Fed("prompts")) == ["b0 offload"]
    two.offloaded("b")
    assert two.end(producer, "a") == ["a0 offload"]
    assert two.offloaded("a") == ["b0 runs 1 onload"]


def test_a_consumer_that_is_fed_by_the_program(two):
    consumer = two.call("b", ins=["rows"])
    assert two.ask(consumer, "b") == []
    assert two.handle(Fed("other")) == []
    assert two.handle(Fed("rows")) == ["a0 offload"]


def test_a_consumer_by_way_of_a_call_without_a_ticket(two):
    """train(scored), score(samples, scored), generate(samples)"""
    consumer = two.call("b", ins=["scored"])
    two.handle(Derive(DRIVER, ["samples"], ["scored"]))
    assert two.handle(Fed("scored")) == []
    assert two.ask(consumer, "b") == [], "what will be scored is not there"
    producer, told = two.begin("a", outs=["samples"])
    assert told == ["b0 offload"]
    two.offloaded("b")
    two.end(producer, "a")
    assert two.offloaded("a") == ["b0 runs 1 onload"]


def test_a_call_without_a_ticket_that_is_issued_last(two):
    consumer = two.call("b", ins=["scored"])
    producer = two.call("a", outs=["samples"])
    two.handle(Derive(DRIVER, ["samples"], ["scored"]))
    two.handle(Fed("scored"))
    assert two.ask(consumer, "b") == []
    assert two.ask(producer, "a") == ["b0 offload"]


def test_what_waits_to_be_fed_holds_nobody_up(two):
    consumer = two.call("b", ins=["samples"])
    two.ask(consumer, "b")
    assert two.begin("a") == (2, ["b0 offload"])
    two.offloaded("b")
    two.handle(Fed("samples"))
    assert two.begin("a") == (3, []), "now the consumer is next"
    assert two.end(2, "a") == ["a0 offload"]
    assert two.offloaded("a") == ["b0 runs 1 onload"]


def test_a_producer_takes_along_what_must_run_before_it(two):
    """b consumes what the second call of a makes; the calls of a's process run in order."""
    consumer = two.call("b", ins=["samples"])
    two.handle(Fed("samples"))  # by something else, too
    first, second = two.call("a"), two.call("a", outs=["samples"])
    assert two.ask(consumer, "b") == []
    assert two.ask(first, "a") == ["b0 offload"]
    two.offloaded("b")
    assert two.end(first, "a") == []
    assert two.ask(second, "a") == ["a0 runs 3"]
    assert [ticket.number for ticket in two.state.tickets] == [second, consumer]


def test_who_has_begun_is_not_overtaken_by_what_was_waiting_to_be_fed():
    """q has begun, on device 0, and needs what r makes, on device 1; t needs both devices, and was issued first."""
    devices = Devices(q=[[0]], r=[[1]], t=[[0, 1]])
    ticket = devices.call("t", ins=["late"])
    devices.ask(ticket, "t")
    produces = devices.call("r", outs=["x"])
    _, told = devices.begin("q", ins=["x"])
    assert told == ["t0 offload"]
    assert devices.offloaded("t") == ["q0 runs 3"]
    assert devices.handle(Fed("late")) == []
    assert devices.ask(produces, "r") == ["r0 runs 2"]


def test_calls_that_need_each_other_are_taken_as_they_come(two):
    """It has no end, but the machine goes on."""
    two.call("a", ins=["actions"], outs=["observations"])
    two.call("b", ins=["observations"], outs=["actions"])
    assert [ticket.number for ticket in two.state.tickets] == [1, 2]
    assert two.ask(1, "a") == ["b0 offload"]


def test_a_channel_that_is_dropped_is_forgotten(two):
    two.handle(Fed("samples"))
    two.handle(Derive(DRIVER, ["samples"], ["scored"]))
    assert two.state.knows("samples")
    two.handle(Dropped("samples"))
    two.handle(Dropped("scored"))
    assert not two.state.knows("samples")
    assert not two.state._made_of
    assert not two.state._fed


# ---- deaths ----


def test_the_death_of_a_holder_frees_what_it_held_and_its_call_runs_again(two):
    two.begin("a")
    two.offloaded("b")
    two.begin("b")
    assert two.die("a") == [], "b would wait for what that call makes"
    assert two.enter("a") == []
    assert two.ask(1, "a") == ["a0 runs 1"]
    assert two.end(1, "a") == ["a0 offload"]


def test_one_rank_dies_and_the_others_go_on():
    devices = Devices(a=[[0], [1]], b=[[0], [1]])
    devices.begin("a")
    devices.offloaded("b", 0)
    devices.offloaded("b", 1)
    devices.begin("b")
    assert devices.die("a", 1) == []
    assert devices.end(1, "a", 0) == []
    devices.enter("a", 1)
    assert devices.ask(1, "a", 1) == ["a1 runs 1"]
    assert devices.end(1, "a", 1) == ["a0 offload", "a1 offload"]


def test_nobody_waits_for_a_rank_that_is_retired():
    devices = Devices(a=[[0], [1]], b=[[0], [1]])
    devices.begin("a")
    devices.offloaded("b", 0)
    devices.offloaded("b", 1)
    devices.begin("b")
    devices.die("a", 1)
    devices.end(1, "a", 0)
    assert devices.handle(Retire(DRIVER, "a", 1)) == ["a0 offload"]


def test_what_a_dead_process_asked_for_is_forgotten(two):
    two.ask(1, "b")
    two.die("b")
    two.call("b")
    assert two.issued == []
    two.begin("a")
    two.enter("b")
    assert two.ask(1, "b") == ["a0 offload"]


def test_death_while_making_room_counts_as_room(two):
    assert two.begin("a") == (1, ["b0 offload"])
    assert two.die("b") == ["a0 runs 1"]


def test_a_new_process_may_be_there_before_the_old_ones_end_is_seen(two):
    two.begin("a")
    two.offloaded("b")
    old = two.clients["a", 0]
    two.enter("a")
    assert two.ask(1, "a") == ["a0 runs 1"]
    assert two.handle(Release(old, 1, 0)) == [], "its place is taken"
    assert two.handle(Gone(old, "died")) == []
    assert two.state.tickets[0].running == {0: two.clients["a", 0]}


def test_a_process_that_comes_while_others_compute_makes_room_at_once(two):
    two.begin("a")
    two.die("b")
    assert two.enter("b") == ["b0 offload"]


def test_a_call_that_had_ended_but_whose_answer_was_lost_runs_again(two):
    two.begin("a")
    two.offloaded("b")
    two.end(1, "a")
    two.die("a")
    assert two.begin("b") == (2, ["b0 runs 2 onload"])
    assert two.enter("a") == ["a0 offload"]
    assert two.ask(1, "a") == []
    two.offloaded("a")
    assert two.end(2, "b") == ["b0 offload"]
    assert two.offloaded("b") == ["a0 runs 1 onload"]


def test_a_dismissed_group_frees_its_devices_as_its_processes_end():
    devices = Devices(a=[[0], [1]], b=[[0]])
    devices.begin("a")
    devices.offloaded("b")
    devices.begin("b")
    assert devices.handle(Dismiss(DRIVER, "a")) == ["a0 offload", "a1 offload"]
    assert devices.ask(1, "a", 0) == [], "its process is about to end"
    assert devices.die("a", 0) == []
    assert devices.die("a", 1) == ["b0 runs 2 onload"]
    assert set(devices.state.groups) == {"b"}


def test_a_group_that_is_launched_again_while_its_old_processes_end():
    devices = Devices(a=[[0]], b=[[0]])
    devices.begin("a")
    devices.offloaded("b")
    old = devices.clients["a", 0]
    devices.handle(Dismiss(DRIVER, "a"))
    devices.launch("a", [[0]])
    devices.handle(Gone(old, "died"))
    assert set(devices.state.groups) == {"a", "b"}
    assert devices.begin("a") == (2, ["a0 runs 2"])


def test_asking_no_longer(two):
    """As after a time limit."""
    first, second = two.call("a"), two.call("b")
    two.ask(second, "b")
    assert two.end(second, "b") == []
    assert two.ask(first, "a") == ["b0 offload"]
    assert two.ask(3, "b") == []
    assert two.end(3, "b") == []
    assert two.state._early == {}

"""Turns on devices: the driver's tickets, a controller, and workers that are played by threads of this process."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from rlinf_cli.flow import timeline
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import Client
from rlinf_cli.flow.controller import Controller
from rlinf_cli.flow.errors import CallTimeoutError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.tickets import Tickets
from rlinf_cli.flow.turns import Turns
from rlinf_cli.flow.worker import Worker, methods, on_device


class Machine(Worker):
    def __init__(self, role, rank, devices):
        self.role, self.rank, self.devices = role, rank, devices
        self.moves = []

    @on_device
    def compute(self, items: In[int] | None = None, results: Out[int] | None = None): ...

    def look(self): ...

    def onload(self):
        self.moves.append("onload")
        return 100

    def offload(self):
        self.moves.append("offload")
        return 70


class Clerk(Worker):
    def copy(self, items: In[int], results: Out[int]): ...


class Run:
    """`launch(rollout=[[0]])`: a role with the devices of each rank."""

    def __init__(self):
        self.controller = Controller("secret")
        self.clients = []
        self.driver = self.join("driver")
        self.tickets = Tickets(self.driver)
        self.groups, self.turns, self.workers = {}, {}, {}

    def join(self, identity, timeout=10.0):
        self.clients.append(Client(self.controller.address(), identity, timeout=timeout))
        return self.clients[-1]

    def launch(self, role, devices, worker=Machine, timeout=10.0, process=""):
        seats = [SimpleNamespace(rank=rank, devices=tuple(mine), process=process or role) for rank, mine in enumerate(devices)]
        self.groups[role] = SimpleNamespace(role=role, methods=methods(worker), seats=seats, alive=range(len(seats)))
        self.tickets.enrol(self.groups[role])
        for rank, mine in enumerate(devices):
            self.start(role, rank, tuple(mine), timeout)

    def start(self, role, rank=0, devices=(0,), timeout=10.0):
        self.workers[role, rank] = Machine(role, rank, devices)
        client = self.join(f"{role}[{rank}]", timeout)
        self.turns[role, rank] = Turns(self.workers[role, rank], client)
        return client

    def issue(self, role, method="compute", ranks=(0,), **arguments):
        with self.tickets.issued(role, self.groups[role].methods[method], ranks, arguments) as ticket:
            return ticket

    def call(self, role, ticket, rank=0, body=lambda: None):
        """What a tenant does; the timing."""
        with timeline.call() as recorder, self.turns[role, rank].taken(ticket):
            body()
        return recorder.timing

    def end(self):
        for client in self.clients:
            client.close()
        self.controller.stop()


@pytest.fixture
def run():
    run = Run()
    yield run
    run.end()


@pytest.fixture
def two(run):
    """Roles `a` and `b` on one device."""
    run.launch("a", [[0]])
    run.launch("b", [[0]])
    return run


def in_background(call, *args, **kwargs):
    thread = threading.Thread(target=call, args=args, kwargs=kwargs, daemon=True)
    thread.start()
    return thread


def test_only_calls_that_compute_on_shared_devices_have_tickets(run):
    run.launch("a", [[0]])
    assert run.issue("a") == 0
    run.launch("elsewhere", [[1]])
    run.launch("clerk", [[0]], Clerk)
    assert run.issue("a") == 0, "nobody else computes on its device"
    run.launch("b", [[0]])
    assert [run.issue(role) for role in ("a", "b", "a", "elsewhere")] == [1, 2, 3, 0]
    assert run.issue("a", "look") == 0
    assert run.issue("clerk", "copy", items=Channel("x", run.driver), results=Channel("y", run.driver)) == 0
    assert run.issue("a", ranks=()) == 0, "there is nobody to run it"
    run.tickets.dismiss("b")
    run.tickets.dismiss("clerk")
    assert run.issue("a") == 0


def test_workers_are_loaded_from_the_start_and_move_when_another_ones_turn_comes(two):
    two.call("a", two.issue("a"))
    assert two.workers["a", 0].moves == []
    assert two.workers["b", 0].moves == ["offload"]
    two.call("a", two.issue("a"))
    two.call("b", two.issue("b"))
    assert two.workers["a", 0].moves == ["offload"]
    assert two.workers["b", 0].moves == ["offload", "onload"]


def test_what_was_moved_is_told_once(two):
    two.call("a", two.issue("a"))
    two.call("b", two.issue("b"))
    assert [(switch.kind, switch.size) for switch in two.turns["b", 0].switches()] == [("offload", 70), ("onload", 100)]
    assert all(switch.seconds >= 0 for switch in two.turns["a", 0].switches())
    assert two.turns["a", 0].switches() == []


def test_no_two_roles_compute_at_once(two):
    inside, most = [], []

    def body():
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()

    calls = [(role, two.issue(role)) for role in "abab"]
    threads = [in_background(two.call, role, ticket, body=body) for role, ticket in calls]
    for thread in threads:
        thread.join(10)
    assert most == [1, 1, 1, 1]


def test_calls_of_one_role_overlap(two):
    meeting = threading.Barrier(2, timeout=10)
    tickets = [two.issue("a"), two.issue("a")]
    threads = [in_background(two.call, "a", ticket, body=meeting.wait) for ticket in tickets]
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert not meeting.broken


def test_where_the_time_of_a_wait_goes(two):
    """Waiting for the other role's call, its making room, and one's own coming back."""
    two.call("a", two.issue("a"))
    for name in ("onload", "offload"):
        for worker in two.workers.values():
            setattr(worker, name, lambda: time.sleep(0.1) or 0)
    held = threading.Event()

    def hold():
        held.set()
        time.sleep(0.2)

    other = in_background(two.call, "a", two.issue("a"), body=hold)
    held.wait(10)
    timing = two.call("b", two.issue("b"), body=lambda: time.sleep(0.05))
    other.join(10)
    assert timing.kinds["wait_lock"] == pytest.approx(0.2, abs=0.1)
    assert timing.kinds["offload"] == pytest.approx(0.1, abs=0.05)
    assert timing.kinds["onload"] == pytest.approx(0.1, abs=0.05)
    assert timing.compute == pytest.approx(0.05, abs=0.04)
    assert [kind for _, _, kind in timing.spans] == ["wait_lock", "offload", "onload"]


def test_a_call_that_raises_lets_go(two):
    with pytest.raises(ZeroDivisionError):
        two.call("a", two.issue("a"), body=lambda: 1 / 0)
    two.call("b", two.issue("b"))


def test_waiting_has_an_end(run):
    run.launch("a", [[0]])
    run.launch("b", [[0]], timeout=0.2)
    held, done = threading.Event(), threading.Event()
    other = in_background(run.call, "a", run.issue("a"), body=lambda: held.set() or done.wait(10))
    held.wait(10)
    with pytest.raises(CallTimeoutError, match=r"b\[0\] has waited 0.2 s for its turn on devices 0, which other roles use"):
        run.call("b", run.issue("b"))
    done.set()
    other.join(10)
    run.call("b", run.issue("b"))


def test_the_death_of_a_holder_lets_the_others_on_once_its_call_has_run_again(two):
    held = threading.Event()
    ticket = two.issue("a")
    in_background(two.call, "a", ticket, body=lambda: held.set() or time.sleep(30))
    held.wait(10)
    waiting = in_background(two.call, "b", two.issue("b"))
    two.clients[1].close()
    waiting.join(0.1)
    assert waiting.is_alive(), "that call may run again"
    two.start("a")
    two.call("a", ticket)
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_failing_offload_fails_the_next_call_of_its_worker_and_nobody_elses(two):
    def broken():
        raise MemoryError("no pinned memory")

    two.workers["b", 0].offload = broken
    two.call("a", two.issue("a"))
    with pytest.raises(MemoryError, match="no pinned memory"):
        two.call("b", two.issue("b"))
    two.call("a", two.issue("a"))


def test_a_failing_onload_is_tried_again(two):
    two.call("a", two.issue("a"))
    onload, two.workers["b", 0].onload = two.workers["b", 0].onload, lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        two.call("b", two.issue("b"))
    two.workers["b", 0].onload = onload
    two.call("b", two.issue("b"))
    assert two.workers["b", 0].moves == ["offload", "onload"]


def test_a_call_that_cannot_be_sent_is_in_nobodys_way(two):
    spec = two.groups["a"].methods["compute"]
    with pytest.raises(TypeError, match="a lock"), two.tickets.issued("a", spec, (0,), {}) as ticket:
        raise TypeError("a lock")
    assert ticket == 1
    two.call("b", two.issue("b"))


def test_a_rank_that_is_retired_is_in_nobodys_way(run):
    run.launch("a", [[0], [1]])
    run.launch("b", [[0]])
    run.call("a", run.issue("a", ranks=(0, 1)))
    run.tickets.retire("a", 1)
    run.call("b", run.issue("b"))


@pytest.mark.parametrize("fed_by", ["declare", "put", "close"])
def test_a_consumer_that_is_issued_first_leaves_the_devices_to_its_producer(two, fed_by):
    samples = Channel("samples", two.driver)
    consumer = two.issue("b", items=samples)
    taken = []
    waiting = in_background(two.call, "b", consumer, body=lambda: taken.append(1))
    two.call("a", two.issue("a"))  # has nothing to do with it
    waiting.join(0.1)
    assert waiting.is_alive()
    if fed_by == "declare":
        producer = two.issue("a", results=samples)
        samples.declare(["a[0]"])
        two.call("a", producer, body=lambda: taken.append(0))
    elif fed_by == "put":
        samples.put(1, wait=True)
    else:
        samples.close()
    waiting.join(10)
    assert taken == ([0, 1] if fed_by == "declare" else [1])


def test_a_consumer_behind_a_role_without_devices(two):
    """train(scored), score(samples, scored), generate(samples)"""
    two.launch("clerk", [[0]], Clerk)
    samples, scored = Channel("samples", two.driver), Channel("scored", two.driver)
    order = []
    waiting = in_background(two.call, "b", two.issue("b", items=scored), body=lambda: order.append("b"))
    two.issue("clerk", "copy", items=samples, results=scored)
    scored.declare(["clerk[0]"])
    two.call("a", two.issue("a", results=samples), body=lambda: order.append("a"))
    waiting.join(10)
    assert order == ["a", "b"]


def test_roles_in_one_process_make_room_for_a_third_one(run):
    """Both listen on the one client of their process."""
    run.launch("c", [[0]])
    client = run.join("a[0]+b[0]")
    for role in "ab":
        seats = [SimpleNamespace(rank=0, devices=(0,), process="a+b")]
        run.groups[role] = SimpleNamespace(role=role, methods=methods(Machine), seats=seats, alive=[0])
        run.tickets.enrol(run.groups[role])
        run.workers[role, 0] = Machine(role, 0, (0,))
        run.turns[role, 0] = Turns(run.workers[role, 0], client)
    run.call("a", run.issue("a"))
    run.call("b", run.issue("b"))
    assert [run.workers[role, 0].moves for role in "abc"] == [[], [], ["offload"]]
    run.call("c", run.issue("c"))
    assert [run.workers[role, 0].moves for role in "abc"] == [["offload"], ["offload"], ["offload", "onload"]]


def test_a_turn_costs_one_round_trip(two):
    two.call("a", two.issue("a"))
    sent = []
    client = two.turns["a", 0]._client
    client.request = lambda kind, *rest, request=client.request: sent.append(kind) or request(kind, *rest)
    client.send = lambda kind, *rest, send=client.send: sent.append(kind) or send(kind, *rest)
    two.call("a", two.issue("a"))
    assert sent == ["lock.ask", "lock.release"]

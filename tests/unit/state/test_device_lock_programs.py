"""Random programs on random devices, run to their end in random order: whoever asks when, whoever dies, nobody computes on a
device that another role computes on, and nothing is left waiting for ever."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from rlinf_cli.state.device_lock import DeviceLockState
from rlinf_cli.state.device_lock_events import (
    Ask,
    Derive,
    Enqueue,
    Enrol,
    Enter,
    Fed,
    Gone,
    Grant,
    Offload,
    Offloaded,
    Release,
)
from rlinf_cli.state.journal import Record, encode, read, replay

DRIVER = 0


@dataclass(frozen=True)
class Role:
    """`devices`: of each rank; none: a role that needs none. `overlaps`: its calls run beside each other."""

    devices: tuple[tuple[int, ...], ...]
    overlaps: bool = False
    shares: str = ""

    @property
    def all(self) -> set[int]:
        return {device for rank in self.devices for device in rank}


@dataclass(frozen=True)
class Program:
    """Calls in the order in which they are issued: a role's number, and those whose results it takes. A negative number
    stands for what somebody outside feeds at some time."""

    roles: tuple[Role, ...]
    calls: tuple[tuple[int, tuple[int, ...]], ...]

    def before(self, call: int, follows: dict[int, set[int]]) -> set[int]:
        found, left = set(), list(follows[call])
        while left:
            other = left.pop()
            if other not in found:
                found.add(other)
                left += follows[other]
        return found


def possible(roles, calls, wanted):
    """The program without those dependencies that would make it wait for itself: calls of a role run in order."""
    follows = defaultdict(set)
    for call, role in enumerate(calls):
        follows[call] |= {other for other in range(call) if calls[other] == role}
    takes = defaultdict(list)
    program = Program(roles, ())
    for consumer, producer in wanted:
        if consumer != producer and consumer not in program.before(producer, follows):
            follows[consumer].add(producer)
            takes[consumer].append(producer)
    return takes


devices = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(tuple)
roles = st.builds(Role, st.lists(devices, min_size=1, max_size=2).map(tuple), st.booleans(), st.sampled_from(["", "", "one"]))
LIGHT = Role(((),), overlaps=True)


@st.composite
def programs(draw, first_things_first=False):
    chosen = (*draw(st.lists(roles, min_size=2, max_size=4)), LIGHT)
    calls = draw(st.lists(st.integers(0, len(chosen) - 1), min_size=2, max_size=9))
    numbers = st.integers(0, len(calls) - 1)
    wanted = draw(st.lists(st.tuples(numbers, numbers), max_size=8))
    if first_things_first:
        wanted = [(max(pair), min(pair)) for pair in wanted]
    takes = possible(chosen, calls, wanted)
    fed = {call: (-1 - call,) for call in range(len(calls)) if not first_things_first and draw(st.integers(0, 3)) == 0}
    return Program(chosen, tuple((role, (*takes[call], *fed.get(call, ()))) for call, role in enumerate(calls)))


@dataclass
class Rank:
    role: int
    rank: int
    client: int = 0
    alive: bool = True
    entered: bool = False
    asked: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)


class World:
    """The machine, the driver that issues calls, and the processes that run them."""

    def __init__(self, program: Program, seed: int, deaths: int, state: DeviceLockState | None = None) -> None:
        self.program, self.deaths = program, deaths
        self.random = random.Random(seed)
        self.state = state or DeviceLockState()
        self.issued = 0
        self.clients = 0
        self.fed: set[int] = set()
        self.ranks = [Rank(number, rank) for number, role in enumerate(program.roles) for rank in range(len(role.devices))]
        self.order: list[int] = []
        """Calls as they began on their first rank."""
        self.to_offload: set[tuple[int, int]] = set()
        for number, role in enumerate(program.roles):
            if role is not LIGHT:
                self.handle(Enrol(DRIVER, self.name(number), dict(enumerate(role.devices)), role.shares or self.name(number)))
        for rank in self.ranks:
            self.enter(rank)

    def name(self, role: int) -> str:
        return f"role{role}"

    def role_of(self, call: int) -> Role:
        return self.program.roles[self.program.calls[call][0]]

    def handle(self, happening) -> None:
        for instruction in self.state.handle(happening):
            match instruction:
                case Grant(client, call, _, _):
                    rank = next(rank for rank in self.ranks if rank.client == client)
                    assert rank.alive
                    assert call in rank.asked - rank.running - rank.ended, "granted twice, or to who did not ask"
                    rank.running.add(call)
                    self.order += [call] * (call not in self.order)
                case Offload(client, group):
                    assert (client, group) not in self.to_offload
                    rank = next(rank for rank in self.ranks if rank.client == client)
                    assert not rank.running, "told to make room while it runs"
                    self.to_offload.add((client, group))
        self.state.validate()
        for ticket in self.state.tickets:
            assert not (ticket.running and ticket.asks) or self.to_offload, "some ranks of a group run and others do not"

    # ---- what can happen next ----

    def actions(self):
        program = self.program
        if self.issued < len(program.calls):
            yield self.issue, ()
        for outside in {taken for _, takes in program.calls for taken in takes if taken < 0} - self.fed:
            yield self.feed, (outside,)
        for rank in self.ranks:
            if not rank.alive:
                yield self.enter, (rank,)
                continue
            if self.deaths and program.roles[rank.role] is not LIGHT:
                yield self.die, (rank,)
            for call in self.can_begin(rank):
                yield self.begin, (rank, call)
            for call in rank.running:
                if all(self.is_there(taken) for taken in program.calls[call][1]):
                    yield self.end, (rank, call)
        for offload in self.to_offload:
            yield self.offload, offload

    def can_begin(self, rank: Rank) -> list[int]:
        mine = [call for call in range(self.issued) if self.program.calls[call][0] == rank.role and call not in rank.ended]
        if not self.program.roles[rank.role].overlaps:
            mine = mine[:1]
        return [call for call in mine if call not in rank.asked]

    def is_there(self, taken: int) -> bool:
        if taken < 0:
            return taken in self.fed
        return all(taken in rank.ended for rank in self.ranks if rank.role == self.program.calls[taken][0])

    # ---- what happens ----

    def issue(self):
        call = self.issued
        self.issued += 1
        role, takes = self.program.calls[call]
        ins, outs = tuple(map(str, takes)), (str(call),)
        if self.program.roles[role] is LIGHT:
            self.handle(Derive(DRIVER, ins, outs))
        else:
            ranks = tuple(range(len(self.program.roles[role].devices)))
            self.handle(Enqueue(DRIVER, call + 1, self.name(role), ranks, ins, outs))
        self.handle(Fed(str(call)))

    def feed(self, outside):
        self.fed.add(outside)
        self.handle(Fed(str(outside)))

    def enter(self, rank):
        self.clients += 1
        rank.client, rank.alive = self.clients, True
        if self.program.roles[rank.role] is not LIGHT:
            self.handle(Enter(rank.client, self.name(rank.role), rank.rank))

    def die(self, rank):
        self.deaths -= 1
        event("a process died" + (" while it ran" if rank.running else ""))
        rank.alive = False
        rank.asked -= rank.asked - rank.ended
        rank.running.clear()
        self.to_offload.discard((rank.client, self.name(rank.role)))
        self.handle(Gone(rank.client, "died"))

    def begin(self, rank, call):
        rank.asked.add(call)
        if self.role_of(call) is LIGHT:
            rank.running.add(call)
        else:
            self.handle(Ask(rank.client, call, call + 1, self.name(rank.role), rank.rank))

    def end(self, rank, call):
        rank.running.remove(call)
        rank.ended.add(call)
        if self.role_of(call) is not LIGHT:
            self.handle(Release(rank.client, call + 1, rank.rank))

    def offload(self, client, group):
        self.to_offload.remove((client, group))
        self.handle(Offloaded(client, group, 0, 0.0))

    def run(self):
        while actions := list(self.actions()):
            action, arguments = self.random.choice(actions)
            action(*arguments)
        left = [call for call in range(len(self.program.calls)) if not self.is_there(call)]
        assert not left, f"calls {left} never ended; the order was {[ticket.number for ticket in self.state.tickets]}"
        assert not self.state.tickets


seeds = st.integers(0, 2**32 - 1)
# q has begun and needs what r makes, which is behind t, which waits for q's device and has only now been fed
HELD_UP = Program((Role(((0, 1),)), Role(((1,),)), Role(((0,),)), LIGHT), ((0, (-1,)), (1, ()), (2, (1,))))


@settings(max_examples=120, deadline=None)
@given(programs(), seeds, st.integers(0, 2))
@example(HELD_UP, 0, 0)
@example(HELD_UP, 1, 0)
@example(HELD_UP, 2, 0)
def test_every_program_ends(program, seed, deaths):
    """Whether consumers are issued before or after their producers."""
    World(program, seed, deaths).run()


@settings(max_examples=120, deadline=None)
@given(programs(first_things_first=True), seeds)
def test_calls_that_share_a_device_run_in_the_order_of_the_program(program, seed):
    world = World(program, seed, 0)
    world.run()
    for place, later in enumerate(world.order):
        for earlier in world.order[place + 1 :]:
            one, other = world.program.calls[earlier][0], world.program.calls[later][0]
            if one != other and world.role_of(earlier).all & world.role_of(later).all:
                assert later < earlier, world.order


@settings(max_examples=50, deadline=None)
@given(programs(), seeds, st.integers(0, 2))
def test_a_journal_replays(program, seed, deaths):
    """Read from its text again, it gives the same instructions."""
    journal = []

    class Recorded(DeviceLockState):
        def handle(self, happening):
            told = super().handle(happening)
            journal.append(encode(Record("device_lock", happening, tuple(told))))
            return told

    World(program, seed, deaths, Recorded()).run()
    assert replay(read(journal), {"device_lock": DeviceLockState()}) is None

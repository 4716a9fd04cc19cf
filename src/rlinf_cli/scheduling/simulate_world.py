"""A world of simulated processes: its own clock, and the state machines that decide in a real run too.

A process is a generator that yields what it waits for. What it puts, asks for and releases goes through the machines of the
device lock and the channels, as it would from a real worker, and their instructions wake it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from rlinf_cli.state import channel_events as channels
from rlinf_cli.state import device_lock_events as lock
from rlinf_cli.state.channel import ChannelsState
from rlinf_cli.state.device_lock import DeviceLockState

_KEY = None


@dataclass(frozen=True)
class Until:
    """Wait for a time."""

    at: float


@dataclass(frozen=True)
class Turn:
    """Wait for the devices of a ticket; the answer is for how long others were making room."""

    ticket: int
    group: str


@dataclass(frozen=True)
class Take:
    """Wait for so many items, or for the end of the channel; the answer is a list of them."""

    group: str
    channel: str
    count: int


@dataclass(eq=False)
class Signal:
    """Something that happens once; a process that yields it waits for it."""

    is_set: bool = False
    waiting: list[Process] = field(default_factory=list)


Request: TypeAlias = Until | Turn | Take | Signal
Process: TypeAlias = Generator[Request, Any, None]


class World:
    """`switch_s`: (group, next group on its devices) -> seconds in which the first makes room."""

    def __init__(self, switch_s: Callable[[str, str], float]) -> None:
        self.now = 0.0
        self.lock, self.channels = DeviceLockState(), ChannelsState()
        self._switch_s = switch_s
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order, self._requests, self._items = count(), count(1), count()
        self._waiting: dict[int, Process] = {}
        self._clients: dict[str, int] = {}

    def run(self) -> None:
        """Until nothing happens any more."""
        while self._events:
            self.now, _, happens = heapq.heappop(self._events)
            happens()
        assert not self._waiting, "processes wait for what nobody does"

    def at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), happens))

    def enrol(self, group: str, devices: Sequence[int], shares: str) -> None:
        """A role, whose ranks all do the same, so that one stands for them."""
        client = self._clients[group] = len(self._clients) + 1
        self.channels.handle(channels.Join(client, f"{group}[0]"))
        self._obey(self.lock.handle(lock.Enrol(client, group, {0: devices}, shares)))
        self._obey(self.lock.handle(lock.Enter(client, group, 0)))

    # ---- what a driver does ----

    def issue(self, ticket: int, group: str, ins: Sequence[str], outs: Sequence[str]) -> None:
        """A call that needs devices."""
        self._obey(self.lock.handle(lock.Enqueue(0, ticket, group, (0,), ins, outs)))

    def derive(self, ins: Sequence[str], outs: Sequence[str]) -> None:
        """A call that needs none."""
        self._obey(self.lock.handle(lock.Derive(0, ins, outs)))

    def feed(self, channel: str) -> None:
        self._obey(self.lock.handle(lock.Fed(channel)))

    def start(self, process: Process) -> None:
        self.at(self.now, lambda: self._go_on(process, None))

    # ---- what processes do ----

    def put(self, group: str, channel: str, items: Iterable[Any], delay: float = 0.0) -> None:
        """Items, which are there after so many seconds."""
        client = self._clients[group]
        put = tuple(channels.Item(client, next(self._items), 1.0, _KEY, 0, item) for item in items)
        self.at(self.now + delay, lambda: self._wake(self.channels.handle(channels.Put(client, channel, put))))

    def close(self, channel: str, delay: float = 0.0) -> None:
        """Nothing more comes."""
        self.at(self.now + delay, lambda: self._wake(self.channels.handle(channels.Close(0, 0, channel))))

    def release(self, ticket: int, group: str) -> None:
        self._obey(self.lock.handle(lock.Release(self._clients[group], ticket, 0)))

    def set(self, signal: Signal) -> None:
        signal.is_set = True
        for process in signal.waiting:
            self.start(process)

    # ---- how they go on ----

    def _go_on(self, process: Process, answer: Any) -> None:
        try:
            request = process.send(answer)
        except StopIteration:
            return
        if isinstance(request, Until):
            self.at(max(self.now, request.at), lambda: self._go_on(process, None))
        elif isinstance(request, Signal):
            if request.is_set:
                self.start(process)
            else:
                request.waiting.append(process)
        else:
            self._ask(process, request)

    def _ask(self, process: Process, request: Turn | Take) -> None:
        number = next(self._requests)
        self._waiting[number] = process
        if isinstance(request, Turn):
            self._obey(self.lock.handle(lock.Ask(self._clients[request.group], number, request.ticket, request.group, 0)))
        else:
            client = self._clients[request.group]
            get = channels.Get(client, number, request.channel, request.count, request.count, None, _KEY)
            self._wake(self.channels.handle(get))

    def _wake(self, instructions: Iterable[channels.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, channels.Deliver):
                self._answer(one.request, [item.payload for item in one.items])
            elif isinstance(one, channels.Fail):
                self._answer(one.request, [])

    def _obey(self, instructions: Iterable[lock.Instruction]) -> None:
        for one in instructions:
            if isinstance(one, lock.Grant):
                self._answer(one.request, one.switch_s)
            else:
                self._make_room(one.client, one.group)

    def _make_room(self, client: int, group: str) -> None:
        following = self.lock.present[client, group].room_for
        assert following is not None
        seconds = self._switch_s(group, following.group)
        done = lock.Offloaded(client, group, 0, seconds)
        self.at(self.now + seconds, lambda: self._obey(self.lock.handle(done)))

    def _answer(self, number: int, answer: Any) -> None:
        process = self._waiting.pop(number)
        self.at(self.now, lambda: self._go_on(process, answer))

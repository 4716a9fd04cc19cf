"""Random histories of two channels: whatever happens, nothing is lost, doubled, reordered or left waiting."""

from __future__ import annotations

import itertools
from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlinf_cli.state.channel import ChannelsState
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
    Event,
    Fail,
    Get,
    Gone,
    Instruction,
    Item,
    Join,
    Put,
    Refuse,
    Release,
    Withdraw,
)

channels = st.sampled_from(["a", "b"])
keys = st.sampled_from([None, None, "x"])
clients = st.integers(0, 2)
_CALM = 8
"""Events between two that end a channel: a closed channel teaches little."""


class Channels(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = ChannelsState(keep_log=True)
        self.instructions: list[Instruction] = []
        self.numbers, self.requests, self.joins = itertools.count(1), itertools.count(1), itertools.count(1)
        self.client: dict[int, int] = {}
        """Number of the connection of each of three processes."""
        self.put_order: dict[tuple[str, object], list[int]] = defaultdict(list)
        self.got: dict[tuple[str, object], list[int]] = defaultdict(list)
        self.fate: dict[int, str] = {}
        """What became of each item: delivered or released; nothing yet is not in here."""
        self.settled: set[int] = set()
        """Items whose producer was told."""
        self.unsettled: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.gets: dict[tuple[int, int], Get] = {}
        self.lost: set[int] = set()
        self.calm = 0
        for process in range(3):
            self.join(process)

    def join(self, process: int) -> None:
        self.client[process] = next(self.joins)
        self.handle(Join(self.client[process], f"role[{process}]"))

    def handle(self, event: Event) -> list[Instruction]:
        self.calm = 0 if isinstance(event, Done | Close | Drop) else self.calm + 1
        before = {name: channel.excess() for name, channel in self.state.channels.items()}
        instructions = self.state.handle(event)
        self.instructions += instructions
        for instruction in instructions:
            self.apply(instruction)
        if not isinstance(event, Cancel | Gone):  # those take back what waiting gets asked for
            for name, channel in self.state.channels.items():
                if channel.capacity:
                    assert channel.excess() <= max(channel.capacity, before.get(name, 0))
        return instructions

    def apply(self, instruction: Instruction) -> None:
        match instruction:
            case Accept(client, channel, count, _):
                for number in self.unsettled[client, channel][:count]:
                    self.settle(number)
                assert count <= len(self.unsettled[client, channel])
                del self.unsettled[client, channel][:count]
            case Refuse(client, channel, numbers, _, _):
                for number in numbers:
                    self.settle(number)
                    self.unsettled[client, channel].remove(number)
            case Deliver(client, request, items):
                get = self.gets.pop((client, request))
                assert client not in self.lost, "delivered to a process that is gone"
                assert len(items) <= get.n
                assert all(item.key == get.key for item in items)
                for item in items:
                    self.end(item.number, "delivered")
                    self.got[get.channel, get.key].append(item.number)
            case Fail(client, request, _, _):
                assert client not in self.lost
                self.gets.pop((client, request), None)
            case Release(items, _):
                for item in items:
                    self.end(item.number, "released")

    def settle(self, number: int) -> None:
        assert number not in self.settled, "a producer was told twice"
        self.settled.add(number)

    def end(self, number: int, how: str) -> None:
        assert number not in self.fate, f"{how} after {self.fate.get(number)}"
        self.fate[number] = how

    @rule(channel=channels, process=clients, keys=st.lists(keys, min_size=1, max_size=5),
          weight=st.sampled_from([0.5, 1.0, 4.0]), size=st.sampled_from([1, 5, 50]))
    def put(self, channel, process, keys, weight, size):
        client = self.client[process]
        items = tuple(Item(client, next(self.numbers), weight, key, size, None) for key in keys)
        for item in items:
            self.put_order[channel, item.key].append(item.number)
            self.unsettled[client, channel].append(item.number)
        self.handle(Put(client, channel, items))

    @rule(channel=channels, process=clients, n=st.integers(1, 5), at_least=st.integers(0, 5), key=keys,
          weight=st.none() | st.just(3.0))
    def get(self, channel, process, n, at_least, key, weight):
        get = Get(self.client[process], next(self.requests), channel, n, min(n, at_least), weight, key)
        self.gets[get.client, get.request] = get
        self.handle(get)
        assert at_least or (get.client, get.request) not in self.gets, "a poll waits"

    @precondition(lambda self: self.gets)
    @rule(data=st.data())
    def cancel(self, data):
        get = data.draw(st.sampled_from(list(self.gets.values())))
        self.handle(Cancel(get.client, get.request, get.channel))
        assert (get.client, get.request) not in self.gets

    @rule(channel=channels, process=clients)
    def withdraw(self, channel, process):
        client = self.client[process]
        numbers = list(self.unsettled[client, channel])
        if numbers:
            instructions = self.handle(Withdraw(client, next(self.requests), channel, numbers[0], numbers[-1]))
            [confirm] = [instruction for instruction in instructions if isinstance(instruction, Confirm)]
            assert list(confirm.value) == numbers
            self.unsettled[client, channel] = []

    @rule(channel=channels, capacity=st.integers(0, 4), capacity_bytes=st.sampled_from([0, 10]))
    def create(self, channel, capacity, capacity_bytes):
        self.handle(Create(self.client[0], next(self.requests), channel, capacity, capacity_bytes))

    @rule(channel=channels, process=clients)
    def declare(self, channel, process):
        self.handle(Declare(self.client[0], next(self.requests), channel, (f"role[{process}]",)))

    @precondition(lambda self: self.calm >= _CALM)
    @rule(channel=channels, process=clients, error=st.sampled_from([None, None, "boom"]))
    def done(self, channel, process, error):
        self.handle(Done(self.client[process], next(self.requests), channel, f"role[{process}]", error))

    @precondition(lambda self: self.calm >= _CALM)
    @rule(channel=channels)
    def close(self, channel):
        self.handle(Close(self.client[0], next(self.requests), channel))

    @precondition(lambda self: self.calm >= _CALM)
    @rule(channel=channels)
    def drop(self, channel):
        self.handle(Drop(self.client[0], next(self.requests), channel))
        assert not any(get.channel == channel for get in self.gets.values()), "a get waits on a dropped channel"
        for of in [of for of in self.put_order if of[0] == channel]:
            assert all(number in self.fate for number in self.put_order[of])

    @rule(process=clients)
    def restart(self, process):
        client = self.client[process]
        self.lost.add(client)
        self.gets = {asked: get for asked, get in self.gets.items() if get.client != client}
        self.handle(Gone(client, "died"))
        self.join(process)

    @precondition(lambda self: len(self.fate) > 30)
    @rule()
    def cancel_all(self):
        self.handle(CancelAll("interrupted"))
        assert not self.gets, "a get waits after everything was cancelled"

    @invariant()
    def holds(self):
        self.state.validate()

    @invariant()
    def conserved(self):
        waiting = sum(channel.count + len(channel.offered) for channel in self.state.channels.values())
        assert sum(map(len, self.put_order.values())) == len(self.fate) + waiting

    @invariant()
    def in_order(self):
        for of, numbers in self.got.items():
            order = {number: place for place, number in enumerate(self.put_order[of])}
            places = [order[number] for number in numbers]
            assert places == sorted(places)

    def teardown(self):
        replayed = ChannelsState()
        assert [answer for event in self.state.log or [] for answer in replayed.handle(event)] == self.instructions
        for channel in ("a", "b"):
            self.close(channel)
            self.holds()
        for name, channel in self.state.channels.items():
            assert channel.offered or not any(get.channel == name for get in self.gets.values()), "a get never ends"


TestChannels = Channels.TestCase
TestChannels.settings = settings(max_examples=100, stateful_step_count=40, deadline=None, derandomize=True)

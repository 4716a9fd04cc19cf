"""Random histories of two channels: whatever happens, nothing is lost, doubled, reordered or left waiting, and an item that
was leased is either there again or has one result, never both."""

from __future__ import annotations

import itertools
import random
from collections import Counter, defaultdict
from dataclasses import dataclass

from hypothesis import given, settings
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
    GiveBack,
    Gone,
    Instruction,
    Item,
    Join,
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
from rlinf_cli.state.channel_queue import NOBODY

channels = st.sampled_from(["a", "b"])
keys = st.sampled_from([None, None, "x"])
clients = st.integers(0, 2)
_CALM = 8
"""Events between two that end a channel: a closed channel teaches little."""


@dataclass
class Held:
    """A lease, as a client knows it. `result`: number of the item that was put to settle it and is not accepted yet."""

    client: int
    item: int
    result: int = 0


class Channels(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.state = ChannelsState(keep_log=True)
        self.instructions: list[Instruction] = []
        self.numbers, self.requests, self.joins = itertools.count(1), itertools.count(1), itertools.count(1)
        self.client: dict[int, int] = {}
        """Number of the connection of each of three processes."""
        self.put_order: dict[tuple[str, object], list[int]] = defaultdict(list)
        self.held: dict[LeaseId, Held] = {}
        self.settles: dict[int, tuple[LeaseId, ...]] = {}
        self.results: Counter[int] = Counter()
        """Accepted results of each item."""
        self.full: set[tuple[int, str]] = set()
        self.closed_for: list[Get] = []
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
        self.handle(Join(self.client[process], f"role[{process}]" + "+other[2]" * (process == 2)))

    def handle(self, event: Event) -> list[Instruction]:
        self.calm = 0 if isinstance(event, Done | Close | Drop | Limit) else self.calm + 1
        returning = isinstance(event, Cancel | Gone | GiveBack) or any(held.client == NOBODY for held in self.held.values())
        before = {name: channel.excess() for name, channel in self.state.channels.items()}
        instructions = self.state.handle(event)
        self.instructions += instructions
        for instruction in instructions:
            self.apply(instruction)
        for get in self.closed_for:
            assert get.channel not in self.state.channels or self.state.channels[get.channel].drained(get.key)
        self.closed_for = []
        if not returning:  # that takes back what waiting gets asked for, or brings back what was taken
            for name, channel in self.state.channels.items():
                if channel.capacity:
                    assert channel.excess() <= max(channel.capacity, before.get(name, 0))
        return instructions

    def apply(self, instruction: Instruction) -> None:
        match instruction:
            case Accept(client, channel, count, _):
                for number in self.unsettled[client, channel][:count]:
                    self.settle(number)
                    for lease in self.settles.get(number, ()):
                        if lease in self.held:
                            self.results[self.held.pop(lease).item] += 1
                assert count <= len(self.unsettled[client, channel])
                del self.unsettled[client, channel][:count]
            case Refuse(client, channel, numbers, _, _):
                for number in numbers:
                    self.settle(number)
                    self.unsettled[client, channel].remove(number)
                    self.forget_result(number)
            case Deliver(client, request, items):
                get = self.gets.pop((client, request))
                assert client not in self.lost, "delivered to a process that is gone"
                assert len(items) <= get.n
                assert not get.lease
                self.check_items(get, items)
                for item in items:
                    self.end(item.number, "delivered")
            case Lend(client, request, channel, items, leases):
                get = self.gets.pop((client, request))
                assert client not in self.lost, "lent to a process that is gone"
                assert get.lease
                self.check_items(get, items)
                for item, number in zip(items, leases, strict=True):
                    assert item.number not in self.fate, "lent after its end"
                    assert LeaseId(channel, number) not in self.held
                    self.held[LeaseId(channel, number)] = Held(client, item.number)
            case TellFull(client, channel, full):
                assert client not in self.lost
                assert ((client, channel) in self.full) != full, "told twice"
                (self.full.add if full else self.full.remove)((client, channel))
            case Fail(client, request, kind, _):
                assert client not in self.lost
                get = self.gets.pop((client, request), None)
                if get and kind == "closed":
                    self.closed_for.append(get)
            case Release(items, _):
                for item in items:
                    self.end(item.number, "released")
                numbers = {item.number for item in items}
                self.held = {lease: held for lease, held in self.held.items() if held.item not in numbers}

    def check_items(self, get: Get, items: tuple[Item, ...]) -> None:
        assert len(items) <= get.n
        assert all(item.key == get.key for item in items)
        numbers = [item.number for item in items]
        assert numbers == sorted(numbers)

    def forget_result(self, number: int) -> None:
        """A result will not be accepted: who holds its leases may try again; those that nobody holds are returned."""
        for lease in self.settles.pop(number, ()):
            held = self.held.get(lease)
            if held and held.client == NOBODY:
                del self.held[lease]
            elif held:
                held.result = 0

    def abandon(self, client: int, leases: list[LeaseId]) -> None:
        """These are returned, but for those whose results are under way."""
        for lease in leases:
            if self.held[lease].result:
                self.held[lease].client = NOBODY
            else:
                del self.held[lease]

    def leases_of(self, client: int, channel: str | None = None) -> list[LeaseId]:
        return [lease for lease, held in self.held.items()
                if held.client == client and channel in (None, lease.channel)]

    def settle(self, number: int) -> None:
        assert number not in self.settled, "a producer was told twice"
        self.settled.add(number)

    def end(self, number: int, how: str) -> None:
        assert number not in self.fate, f"{how} after {self.fate.get(number)}"
        self.fate[number] = how

    @rule(channel=channels, process=clients, keys=st.lists(keys, min_size=1, max_size=5),
          weight=st.sampled_from([0.5, 1.0, 4.0]), size=st.sampled_from([1, 5, 50]), results=st.integers(0, 3))
    def put(self, channel, process, keys, weight, size, results):
        self.do_put(channel, self.client[process], keys, weight, size, results)

    def do_put(self, channel, client, keys, weight=1.0, size=1, results=0):
        numbers = [next(self.numbers) for _ in keys]
        settles = tuple(lease for lease in self.leases_of(client) if not self.held[lease].result)[:results]
        for lease in settles:
            self.held[lease].result = numbers[-1]
        self.settles[numbers[-1]] = settles
        items = tuple(Item(client, number, weight, key, size, None, settles if number == numbers[-1] else ())
                      for number, key in zip(numbers, keys, strict=True))
        for item in items:
            self.put_order[channel, item.key].append(item.number)
            self.unsettled[client, channel].append(item.number)
        self.handle(Put(client, channel, items))

    @rule(channel=channels, process=clients, n=st.integers(1, 5), at_least=st.integers(0, 5), key=keys,
          weight=st.none() | st.just(3.0), lease=st.booleans())
    def get(self, channel, process, n, at_least, key, weight, lease):
        self.do_get(channel, self.client[process], n, at_least, key, weight, lease)

    def do_get(self, channel, client, n, at_least, key=None, weight=None, lease=False):
        get = Get(client, next(self.requests), channel, n, min(n, at_least), weight, key, lease)
        self.gets[get.client, get.request] = get
        self.handle(get)
        assert at_least or (get.client, get.request) not in self.gets, "a poll waits"

    @precondition(lambda self: self.held)
    @rule(data=st.data(), channel=channels, process=clients, back=st.booleans())
    def end_leases(self, data, channel, process, back):
        mine = self.leases_of(self.client[process], channel)
        self.do_end(channel, self.client[process], data.draw(st.lists(st.sampled_from(mine), unique=True)) if mine else [], back)

    def do_end(self, channel, client, chosen, back):
        chosen = [lease for lease in chosen if back or not self.held[lease].result]
        numbers = tuple(lease.number for lease in chosen)
        if back:
            self.abandon(client, chosen)
            self.handle(GiveBack(client, channel, (*numbers, 10_000)))
        else:
            done = [self.held[lease].item for lease in chosen]
            self.handle(Settle(client, channel, (*numbers, 10_000)))
            assert all(item in self.fate for item in done)

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
        for number in numbers:
            self.forget_result(number)
        if numbers:
            instructions = self.handle(Withdraw(client, next(self.requests), channel, numbers[0], numbers[-1]))
            [confirm] = [instruction for instruction in instructions if isinstance(instruction, Confirm)]
            assert list(confirm.value) == numbers
            self.unsettled[client, channel] = []

    @rule(channel=channels)
    def end_leases_of_others(self, channel):
        """Somebody who has none."""
        numbers = tuple(lease.number for lease, held in self.held.items() if lease.channel == channel
                        and held.client != NOBODY)
        for kind in (Settle, GiveBack):
            assert self.handle(kind(99, channel, numbers)) == []

    @rule(channel=channels, capacity=st.integers(0, 4), capacity_bytes=st.sampled_from([0, 10]))
    def create(self, channel, capacity, capacity_bytes):
        self.handle(Create(self.client[0], next(self.requests), channel, capacity, capacity_bytes))

    @rule(channel=channels, process=clients, guarded=st.booleans())
    def declare(self, channel, process, guarded):
        self.handle(Declare(self.client[0], next(self.requests), channel, (f"role[{process}]",), guarded))

    @precondition(lambda self: self.calm >= _CALM)
    @rule(channel=channels, count=st.integers(1, 20))
    def limit(self, channel, count):
        before = self.state.channels[channel].tally.accepted if channel in self.state.channels else 0
        self.handle(Limit(self.client[0], next(self.requests), channel, count))
        assert self.state.channels[channel].tally.accepted == before

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
        self.full = {told for told in self.full if told[0] != client}
        self.abandon(client, self.leases_of(client))
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
        there = sum(channel.count + len(channel.offered) + len(channel.leased) for channel in self.state.channels.values())
        assert sum(map(len, self.put_order.values())) == len(self.fate) + there

    @invariant()
    def in_order(self):
        for channel in self.state.channels.values():
            for queue in channel.waiting.values():
                numbers = [item.number for item in queue]
                assert numbers == sorted(numbers)

    @invariant()
    def leases_are_as_their_clients_know_them(self):
        there = {LeaseId(name, number): (lease.client, lease.item.number)
                 for name, channel in self.state.channels.items() for number, lease in channel.leased.items()}
        assert there == {lease: (held.client, held.item) for lease, held in self.held.items()}

    @invariant()
    def one_result_or_the_item(self):
        for item, count in self.results.items():
            assert count == 1
            assert item in self.fate

    def check(self):
        for holds in (self.holds, self.conserved, self.in_order, self.one_result_or_the_item,
                      self.leases_are_as_their_clients_know_them):
            holds()

    def teardown(self):
        replayed = ChannelsState()
        assert [answer for event in self.state.log or [] for answer in replayed.handle(event)] == self.instructions
        for channel in ("a", "b"):
            self.handle(Close(self.client[0], next(self.requests), channel))
            for client in self.client.values():
                self.handle(Settle(client, channel, tuple(lease.number for lease in self.leases_of(client, channel))))
            self.holds()
        for name, channel in self.state.channels.items():
            ended = not channel.offered and not channel.leased
            assert not ended or not any(get.channel == name for get in self.gets.values()), "a get never ends"


TestChannels = Channels.TestCase
TestChannels.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), capacity=st.integers(0, 2))
def test_what_comes_of_an_item_or_the_item_is_there(seed, capacity):
    """Long histories as channels are meant for: leased from the one, and what comes of it put into the other."""
    chance, model = random.Random(seed), Channels()
    model.handle(Create(model.client[0], next(model.requests), "b", capacity, 0))
    while len(model.state.log) < 600:
        process = chance.randrange(3)
        client = model.client[process]
        match chance.choices(range(8), (30, 10, 10, 4, 4, 3, 1, 1))[0]:
            case 0:
                model.do_put("a", client, chance.choices([None, "x"], (3, 1), k=chance.randint(1, 3)))
                model.do_get("a", client, 3, at_least=0, key=chance.choice([None, "x"]), lease=True)
                model.do_put("b", client, [None], results=chance.randint(1, 3))
            case 1:
                model.do_get("a", client, chance.randint(1, 3), at_least=1, lease=True)
            case 2:
                model.do_get("b", client, chance.randint(1, 3), at_least=0)
            case 3:
                model.do_end("a", client, model.leases_of(client, "a")[: chance.randint(1, 3)], back=chance.random() < 0.7)
            case 4:
                model.withdraw("b", process)
            case 5:
                model.restart(process)
            case 6:
                model.drop(chance.choice("bbba"))
                model.handle(Create(client, next(model.requests), "b", capacity, 0))
            case 7:
                accepted = model.state.channels["b"].tally.accepted if "b" in model.state.channels else 0
                model.handle(Limit(client, next(model.requests), "b", accepted + chance.randint(1, 5)))
        model.check()
    model.teardown()

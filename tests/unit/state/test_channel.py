from __future__ import annotations

import itertools

import pytest

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

PRODUCER, CONSUMER, OTHER = 1, 2, 3


class Bench:
    """A state machine with short names for events, validated after each."""

    def __init__(self) -> None:
        self.state = ChannelsState(keep_log=True)
        self.numbers = itertools.count(1)
        self.requests = itertools.count(1)
        for client, identity in ((PRODUCER, "rollout[0]"), (CONSUMER, "actor[0]"), (OTHER, "rollout[1]")):
            self.handle(Join(client, identity))

    def handle(self, event: Event) -> list[Instruction]:
        instructions = self.state.handle(event)
        self.state.validate()
        return instructions

    def items(self, *payloads: object, key: object = None, weight: float = 1.0, size: int = 1, client: int = PRODUCER):
        return tuple(Item(client, next(self.numbers), weight, key, size, payload) for payload in payloads)

    def put(self, *payloads: object, client: int = PRODUCER, **options):
        return self.handle(Put(client, "c", self.items(*payloads, client=client, **options)))

    def get(self, n: int = 1, at_least: int = 1, weight: float | None = None, key: object = None,
            client: int = CONSUMER):
        return self.handle(Get(client, next(self.requests), "c", n, at_least, weight, key))

    def ask(self, kind: type, *arguments: object, client: int = CONSUMER):
        return self.handle(kind(client, next(self.requests), "c", *arguments))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def delivered(instructions: list[Instruction]) -> list[object]:
    return [item.payload for instruction in instructions if isinstance(instruction, Deliver)
            for item in instruction.items]


def only(kind: type, instructions: list[Instruction]) -> list[Instruction]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def failures(instructions: list[Instruction]) -> list[tuple[int, str]]:
    return [(instruction.client, instruction.kind) for instruction in only(Fail, instructions)]


class TestOrder:
    def test_items_come_out_in_order(self, bench):
        bench.put("a", "b")
        bench.put("c")
        assert delivered(bench.get(5)) == ["a", "b", "c"]

    def test_each_item_is_delivered_once(self, bench):
        bench.put("a", "b", "c")
        assert [delivered(bench.get()) for _ in range(4)] == [["a"], ["b"], ["c"], []]

    def test_a_put_answers_the_get_that_waits(self, bench):
        assert bench.get() == []
        instructions = bench.put("a")
        assert [type(instruction) for instruction in instructions] == [Accept, Deliver]
        assert delivered(instructions) == ["a"]

    def test_waiting_gets_are_served_in_order_of_arrival(self, bench):
        bench.get(client=OTHER)
        bench.get(client=CONSUMER)
        deliveries = only(Deliver, bench.put("a", "b"))
        assert [(delivery.client, delivery.items[0].payload) for delivery in deliveries] == [(OTHER, "a"), (CONSUMER, "b")]

    def test_two_producers_keep_each_its_order(self, bench):
        bench.put("a1", client=PRODUCER)
        bench.put("b1", client=OTHER)
        bench.put("a2", client=PRODUCER)
        assert delivered(bench.get(3)) == ["a1", "b1", "a2"]


class TestAmounts:
    def test_a_get_takes_no_more_than_n(self, bench):
        bench.put(*range(5))
        assert delivered(bench.get(3)) == [0, 1, 2]
        assert bench.state.waiting("c") == 2

    def test_at_least_waits(self, bench):
        bench.put(0, 1)
        assert delivered(bench.get(4, at_least=3)) == []
        assert delivered(bench.put(2, 3, 4)) == [0, 1, 2, 3]

    def test_at_least_zero_polls(self, bench):
        [delivery] = bench.get(4, at_least=0)
        assert delivery.items == ()
        bench.put(0)
        assert delivered(bench.get(4, at_least=0)) == [0]

    def test_a_get_that_asks_for_more_holds_nobody_up(self, bench):
        bench.get(4, at_least=4, client=OTHER)
        bench.put(0, 1)
        assert delivered(bench.get(1)) == [0]
        assert delivered(bench.put(2, 3, 4)) == [1, 2, 3, 4]

    def test_weight_limits_a_get(self, bench):
        for weight in (3.0, 4.0, 5.0):
            bench.put(weight, weight=weight)
        assert delivered(bench.get(10, at_least=10, weight=7.0)) == [3.0, 4.0]

    def test_an_item_heavier_than_the_limit_comes_alone(self, bench):
        bench.put("heavy", weight=100.0)
        bench.put("light", weight=1.0)
        assert delivered(bench.get(10, weight=7.0)) == ["heavy"]

    def test_weight_reached_exactly_waits_for_at_least(self, bench):
        bench.put("a", weight=7.0)
        assert delivered(bench.get(10, at_least=2, weight=7.0)) == []
        assert delivered(bench.put("b", weight=1.0)) == ["a"]


class TestKeys:
    def test_a_key_goes_only_to_its_get(self, bench):
        bench.put("a", key="x")
        bench.put("b", key="y")
        assert delivered(bench.get(5, key="y")) == ["b"]
        assert delivered(bench.get(5, key="x")) == ["a"]

    def test_a_get_without_key_leaves_keyed_items(self, bench):
        bench.put("a", key="x")
        assert bench.get() == []
        assert delivered(bench.put("b")) == ["b"]
        assert bench.state.waiting("c") == 1

    def test_keys_end_together(self, bench):
        bench.put("a", key="x")
        bench.ask(Close)
        assert failures(bench.get(key="y")) == [(CONSUMER, "closed")]
        assert delivered(bench.get(key="x")) == ["a"]


class TestCapacity:
    def test_what_has_no_room_is_kept_out_until_there_is(self, bench):
        bench.ask(Create, 2, 0)
        [accept] = bench.put(*range(5))
        assert (accept.count, accept.window) == (2, 2)
        assert bench.state.waiting("c") == 2
        instructions = bench.get(1)
        assert delivered(instructions) == [0]
        assert [instruction.count for instruction in only(Accept, instructions)] == [1]

    def test_each_producer_is_told_of_its_own(self, bench):
        bench.ask(Create, 1, 0)
        bench.put("a")
        bench.put("b", client=OTHER)
        bench.put("c")
        assert [instruction.client for instruction in only(Accept, bench.get())] == [OTHER]
        assert [instruction.client for instruction in only(Accept, bench.get())] == [PRODUCER]

    def test_a_get_larger_than_the_capacity_ends(self, bench):
        bench.ask(Create, 2, 0)
        bench.get(8, at_least=8)
        assert delivered(bench.put(*range(8))) == list(range(8))

    def test_a_get_larger_than_the_bytes_ends(self, bench):
        bench.ask(Create, 0, 10)
        bench.get(3, at_least=3)
        assert delivered(bench.put(*range(3), size=8)) == [0, 1, 2]

    def test_bytes_are_bounded(self, bench):
        bench.ask(Create, 0, 10)
        assert bench.put("a", "b", "c", size=4)[0].count == 2

    def test_an_item_larger_than_the_channel_is_taken_when_it_is_empty(self, bench):
        bench.ask(Create, 0, 10)
        assert bench.put("large", "small", size=100)[0].count == 1
        assert delivered(bench.get(2)) == ["large"]
        assert delivered(bench.get(2)) == ["small"]

    def test_options_cannot_change_under_items(self, bench):
        bench.put("a")
        [failure] = bench.ask(Create, 2, 0)
        assert failure.kind == "refused"
        assert "create it before the first put" in failure.message

    def test_the_same_options_again_are_fine(self, bench):
        bench.ask(Create, 2, 0)
        bench.put("a")
        assert isinstance(bench.ask(Create, 2, 0)[0], Confirm)

    def test_withdraw_takes_back_what_is_not_accepted(self, bench):
        bench.ask(Create, 1, 0)
        items = bench.items("a", "b", "c")
        bench.handle(Put(PRODUCER, "c", items))
        instructions = bench.ask(Withdraw, items[0].number, items[2].number, client=PRODUCER)
        [confirm] = only(Confirm, instructions)
        assert confirm.value == (items[1].number, items[2].number)
        assert [item.payload for release in only(Release, instructions) for item in release.items] == ["b", "c"]
        assert delivered(bench.get(3)) == ["a"]

    def test_withdraw_leaves_those_of_others(self, bench):
        bench.ask(Create, 1, 0)
        bench.put("a")
        mine, theirs = bench.items("b"), bench.items("c", client=OTHER)
        bench.handle(Put(PRODUCER, "c", mine))
        bench.handle(Put(OTHER, "c", theirs))
        bench.ask(Withdraw, 0, theirs[0].number, client=PRODUCER)
        assert [delivered(bench.get()) for _ in range(2)] == [["a"], ["c"]]


class TestEnd:
    def test_closed_gives_what_is_left_then_fails(self, bench):
        bench.put("a")
        bench.ask(Close)
        assert delivered(bench.get(4, at_least=4)) == ["a"]
        assert failures(bench.get()) == [(CONSUMER, "closed")]

    def test_close_ends_waiting_gets(self, bench):
        bench.put("a", "b")
        bench.get(4, at_least=4)
        bench.get(4, at_least=4, client=OTHER)
        instructions = bench.ask(Close)
        assert delivered(instructions) == ["a", "b"]
        assert failures(instructions) == [(OTHER, "closed")]

    def test_put_after_close_is_refused(self, bench):
        bench.ask(Close)
        refuse, release = bench.put("a")
        assert isinstance(refuse, Refuse)
        assert refuse.kind == "closed"
        assert isinstance(release, Release)

    def test_what_was_offered_before_close_still_comes(self, bench):
        bench.ask(Create, 1, 0)
        bench.put("a", "b")
        bench.ask(Close)
        assert [delivered(bench.get()) for _ in range(2)] == [["a"], ["b"]]
        assert failures(bench.get()) == [(CONSUMER, "closed")]

    def test_all_declared_producers_done_closes(self, bench):
        bench.ask(Declare, ("rollout[0]", "rollout[1]"))
        bench.get()
        assert failures(bench.ask(Done, "rollout[0]", None)) == []
        assert failures(bench.ask(Done, "rollout[1]", None)) == [(CONSUMER, "closed")]

    def test_done_twice_is_done(self, bench):
        bench.ask(Declare, ("rollout[0]", "rollout[1]"))
        bench.ask(Done, "rollout[0]", None)
        bench.ask(Done, "rollout[0]", None)
        assert not bench.state.channels["c"].closed

    def test_done_of_a_stranger_is_refused(self, bench):
        [failure] = bench.ask(Done, "rolout[0]", None)
        assert failure.message == "'rolout[0]' was not declared as a producer of channel 'c'"

    def test_a_closed_channel_takes_no_producer(self, bench):
        bench.ask(Close)
        assert failures(bench.ask(Declare, ("rollout[0]",))) == [(CONSUMER, "closed")]

    def test_drop_discards_and_counts(self, bench):
        bench.ask(Create, 1, 0)
        bench.put("a", "b")
        bench.get(key="nothing")
        instructions = bench.ask(Drop)
        assert only(Confirm, instructions)[0].value == 2
        assert failures(instructions) == [(CONSUMER, "closed")]
        assert [item.payload for release in only(Release, instructions) for item in release.items] == ["a", "b"]
        assert [refuse.client for refuse in only(Refuse, instructions)] == [PRODUCER]
        assert bench.state.channels == {}

    def test_drop_of_nothing_confirms(self, bench):
        assert bench.ask(Drop)[0].value == 0

    def test_cancel_ends_a_get_and_takes_nothing(self, bench):
        bench.get(2, at_least=2)
        request = next(bench.requests) - 1
        assert failures(bench.handle(Cancel(CONSUMER, request, "c"))) == [(CONSUMER, "timeout")]
        assert delivered(bench.put("a", "b")) == []

    def test_cancel_of_an_answered_get_does_nothing(self, bench):
        bench.get()
        request = next(bench.requests) - 1
        bench.put("a")
        assert bench.handle(Cancel(CONSUMER, request, "c")) == []


class TestBroken:
    def test_an_error_breaks_at_once_whatever_waits(self, bench):
        bench.ask(Declare, ("rollout[0]",))
        bench.put("a")
        bench.get(key="x", client=OTHER)
        instructions = bench.ask(Done, "rollout[0]", "rollout[0] failed: boom")
        assert failures(instructions) == [(OTHER, "broken")]
        [failure] = bench.get()
        assert (failure.kind, failure.message) == ("broken", "rollout[0] failed: boom")
        assert bench.put("b")[0].message == "rollout[0] failed: boom"

    def test_what_was_offered_is_refused(self, bench):
        bench.ask(Create, 1, 0)
        bench.ask(Declare, ("rollout[1]",))
        bench.put("a", "b")
        refuse, release, *_ = only(Refuse | Release, bench.ask(Done, "rollout[1]", "boom"))
        assert (refuse.client, len(refuse.numbers)) == (PRODUCER, 1)
        assert [item.payload for item in release.items] == ["a", "b"]

    def test_a_lost_producer_breaks_its_channels(self, bench):
        bench.ask(Declare, ("rollout[1]",))
        bench.get()
        [failure] = bench.handle(Gone(OTHER, "died"))
        assert (failure.client, failure.kind, failure.message) == (CONSUMER, "broken", "rollout[1] died")

    def test_a_producer_that_is_done_may_go(self, bench):
        bench.ask(Declare, ("rollout[0]", "rollout[1]"))
        bench.ask(Done, "rollout[1]", None)
        assert bench.handle(Gone(OTHER, "died")) == []
        assert bench.state.channels["c"].broken is None

    def test_a_call_of_a_lost_process_breaks_its_channels(self, bench):
        bench.ask(Declare, ("rollout[0]#7", "rollout[1]#8"))
        bench.ask(Done, "rollout[0]#7", None)
        assert bench.handle(Gone(PRODUCER, "died")) == []
        bench.handle(Gone(OTHER, "died"))
        assert bench.get()[0].message == "rollout[1] died"

    def test_a_restarted_producer_may_be_declared(self, bench):
        bench.handle(Gone(OTHER, "died"))
        bench.ask(Declare, ("rollout[1]",))
        assert bench.get() == []

    def test_a_lost_producer_loses_nothing_it_has_put(self, bench):
        bench.ask(Create, 1, 0)
        bench.put("a", "b", client=OTHER)
        bench.handle(Gone(OTHER, "died"))
        assert [delivered(bench.get()) for _ in range(2)] == [["a"], ["b"]]

    def test_a_lost_consumer_gets_nothing_more(self, bench):
        bench.get(client=OTHER)
        bench.get(client=CONSUMER)
        bench.handle(Gone(OTHER, "died"))
        assert [delivery.client for delivery in only(Deliver, bench.put("a"))] == [CONSUMER]

    def test_cancel_all_breaks_what_is_and_what_comes(self, bench):
        bench.put("a")
        bench.get(key="x")
        assert failures(bench.handle(CancelAll("interrupted"))) == [(CONSUMER, "broken")]
        [failure] = bench.handle(Get(CONSUMER, 99, "new", 1, 1, None, None))
        assert failure.message == "interrupted"
        assert bench.handle(Put(PRODUCER, "newer", bench.items("a")))[0].kind == "broken"


def test_the_log_replays_to_the_same_instructions(bench):
    bench.ask(Create, 2, 0)
    bench.get(2, at_least=2)
    bench.put("a", "b", "c", "d", key=None)
    bench.ask(Close)
    bench.get(5)
    replayed = ChannelsState()
    first = [replayed.handle(event) for event in bench.state.log]
    second_state = ChannelsState()
    assert [second_state.handle(event) for event in bench.state.log] == first
    assert delivered([instruction for answers in first for instruction in answers]) == ["a", "b", "c", "d"]


def test_thousands_of_channels_leave_nothing(bench):
    for step in range(3000):
        name = f"step-{step}"
        bench.state.handle(Put(PRODUCER, name, bench.items("a")))
        bench.state.handle(Get(CONSUMER, step, name, 1, 1, None, None))
        bench.state.handle(Close(PRODUCER, step, name))
        bench.state.handle(Drop(PRODUCER, step, name))
    assert bench.state.channels == {}

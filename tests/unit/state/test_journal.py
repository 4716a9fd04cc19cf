from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.state.channel import ChannelsState
from rlinf_cli.state.channel_events import Accept, Close, Deliver, Event, Fail, Get, Gone, Item, Join, LeaseId, Lend, Put
from rlinf_cli.state.journal import Difference, Record, decode, encode, read, replay

EVENTS = [
    Join(1, "driver"), Join(2, "reward[0]"), Put(1, "jobs", (Item(1, 1, 1.0, None, 3, object()), Item(1, 2, 0.1, "x", 3, b"y"))),
    Get(2, 1, "jobs", 4, 1, None, None, True), Get(2, 2, "jobs", 1, 1, 2.5, "x"), Close(1, 1, "jobs"),
    Put(2, "results", (Item(2, 1, 1.0, 7, 3, None, (LeaseId("jobs", 1),)),)), Get(2, 3, "jobs", 1, 1, None, None),
    Gone(2, "died"),
]  # fmt: skip


@dataclass(frozen=True)
class Foreign:
    number: int


class Parrot:
    """Answers with what it is told."""

    def handle(self, event: object) -> list[object]:
        return [event]


def record(events: list[Event]) -> list[Record]:
    state = ChannelsState()
    return [Record("channels", event, tuple(state.handle(event))) for event in events]


def test_a_record_reads_back_exactly_but_for_payloads():
    for one in record(EVENTS):
        back = decode(encode(one))
        assert (back.machine, type(back.event)) == (one.machine, type(one.event))
        assert encode(back) == encode(one)
    [_, _, _, lend, *_] = [decode(encode(one)) for one in record(EVENTS)]
    assert lend.instructions == (Lend(2, 1, "jobs", (Item(1, 1, 1.0, None, 3, None),), (1,)),)
    assert type(lend.instructions[0].items[0]) is Item


def test_a_line_is_short_and_readable():
    assert encode(record(EVENTS)[1]) == '["channels",{"channel_events.Join":[2,"reward[0]"]},[]]\n'


def test_payloads_are_left_out():
    line = encode(Record("channels", Put(1, "c", (Item(1, 1, 1.0, None, 1, {"secret": "x"}),)), ()))
    assert "secret" not in line


@pytest.mark.parametrize("value", [
    (), [], [1, (2, [3])], {"a": 1, 2: (3,)}, {1: [2]}, frozenset({"b", "a"}), None, True, 1.5, 1e300, -0.0, "ü\ud800\n", 2**80,
    (("a",), ["b"]),
])  # fmt: skip
def test_values_keep_their_types(value):
    back = decode(encode(Record("m", value, (value,))))
    assert back.event == value
    assert type(back.event) is type(value)
    assert encode(back) == encode(Record("m", value, (value,)))
    assert [type(one) for one in _inside(back.instructions)] == [type(one) for one in _inside((value,))]


def _inside(value):
    yield value
    for one in [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from _inside(one)


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.recursive(plain, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner)))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_any_value_reads_back(value):
    assert decode(encode(Record("m", value, ()))).event == value


@pytest.mark.parametrize("value", [Foreign(1), object(), b"bytes", 1j])
def test_only_what_machines_are_made_of_is_written(value):
    with pytest.raises(TypeError, match=r"a journal holds numbers, texts, and what rlinf_cli\.state defines, not"):
        encode(Record("m", value, ()))


@pytest.mark.parametrize("tag", ["channel_events.Nothing", "channel_events.dataclass", "journal.json", "channel.ChannelsState"])
def test_only_what_machines_are_made_of_is_read(tag):
    with pytest.raises((ValueError, TypeError), match=r"not a type that a journal holds|a journal holds"):
        decode(json.dumps(["m", {tag: [1]}, []]))


@pytest.mark.parametrize("line", ["{}", "[1,2]", "nonsense"])
def test_what_is_no_record_is_refused(line):
    with pytest.raises(ValueError, match=r"not a record of a journal|Expecting value"):
        decode(line)


def test_a_last_line_that_was_cut_off_is_skipped():
    lines = [encode(one) for one in record(EVENTS)]
    lines[-1] = lines[-1][:20]
    assert len(list(read(lines))) == len(EVENTS) - 1


class TestReplay:
    def test_fresh_machines_answer_the_same(self):
        written = [decode(encode(one)) for one in record(EVENTS)]
        assert replay(written, {"channels": ChannelsState()}) is None

    def test_payloads_make_no_difference(self):
        assert replay(record(EVENTS), {"channels": ChannelsState()}) is None

    def test_the_first_difference_is_told(self):
        written = record(EVENTS)
        forged = Record("channels", written[4].event, (Fail(2, 2, "timeout", "never"),))
        found = replay([*written[:4], forged, *written[5:]], {"channels": ChannelsState()})
        assert found == Difference(5, forged, (Deliver(2, 2, (Item(1, 2, 0.1, "x", 3, b"y"),)),))

    def test_an_answer_that_is_missing_is_a_difference(self):
        written = record(EVENTS)
        silent = Record("channels", written[2].event, ())
        found = replay([*written[:2], silent], {"channels": ChannelsState()})
        assert found.number == 3
        assert found.instructions == (Accept(1, "jobs", 2, 0),)

    def test_machines_are_told_apart(self):
        channels = record(EVENTS)
        parrot = Record("parrot", EVENTS[0], (EVENTS[0],))
        mixed = [one for pair in zip(channels, [parrot] * len(channels), strict=True) for one in pair]
        assert replay(mixed, {"channels": ChannelsState(), "parrot": Parrot()}) is None
        with pytest.raises(KeyError, match="parrot"):
            replay(mixed, {"channels": ChannelsState()})

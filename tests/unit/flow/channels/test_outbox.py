from __future__ import annotations

import pytest

from rlinf_cli.flow.outbox import Outbox


class Bench:
    def __init__(self) -> None:
        self.sent: list = []
        self.outbox = Outbox("c", self.sent.append)
        self.number = 0

    def add(self, inline: int = 10, now: bool = False) -> bool:
        self.number += 1
        return self.outbox.add((self.number, 1.0, None, inline, (b"", (), None), ()), inline, now)

    def batches(self) -> list[list[int]]:
        return [[row[0] for row in rows] for _, _, rows in self.sent]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_goes_at_once_the_next_wait_for_its_answer(bench):
    assert [bench.add() for _ in range(4)] == [True, False, False, False]
    bench.outbox.accepted(1, 0)
    assert bench.batches() == [[1], [2, 3, 4]]


def test_one_answer_of_several_is_not_enough(bench):
    bench.add()
    bench.add(now=True)
    bench.add()
    bench.outbox.accepted(1, 0)
    assert bench.batches() == [[1], [2]]
    bench.outbox.accepted(1, 0)
    assert bench.batches() == [[1], [2], [3]]


def test_a_frames_worth_does_not_wait(bench):
    bench.add()
    due = [bench.add(inline=1024) for _ in range(200)]
    assert due.count(True) == 3
    assert [len(batch) for batch in bench.batches()] == [1, 64, 64, 64]


def test_a_message_names_the_channel(bench):
    bench.add()
    assert bench.sent[0][:2] == ("put", "c")


def test_everything_accepted_is_settled(bench):
    for _ in range(3):
        bench.add()
    assert not bench.outbox.settled(1)
    bench.outbox.accepted(1, 0)
    assert (bench.outbox.settled(1), bench.outbox.settled(2)) == (True, False)
    bench.outbox.accepted(2, 0)
    assert bench.outbox.settled(3)
    assert bench.outbox.pending == 0


def test_the_window_bounds_the_items(bench):
    while bench.outbox.has_room(1):
        bench.add(inline=1)
    assert bench.outbox.pending == 8192
    bench.outbox.accepted(1, 0)
    assert bench.outbox.has_room(1)


def test_the_window_bounds_the_bytes(bench):
    while bench.outbox.has_room(1_000_000):
        bench.add(inline=1_000_000)
    assert bench.outbox.pending == 8
    assert bench.outbox.has_room(100)


def test_an_item_larger_than_the_window_goes_alone(bench):
    assert bench.outbox.has_room(1 << 30)
    bench.add(inline=1 << 30)
    assert not bench.outbox.has_room(1)
    bench.outbox.accepted(1, 0)
    assert bench.outbox.has_room(1)


def test_a_bounded_channel_bounds_what_runs_ahead(bench):
    bench.add()
    bench.outbox.accepted(1, 2)
    bench.add()
    assert bench.outbox.has_room(1)
    bench.add()
    assert not bench.outbox.has_room(1)


def test_what_is_refused_is_settled_and_told(bench):
    for _ in range(3):
        bench.add(now=True)
    bench.outbox.refused((2, 3), "closed", "it is closed")
    assert bench.outbox.refusal == ("closed", "it is closed")
    assert (bench.outbox.unreported, bench.outbox.pending) == (True, 1)
    assert bench.outbox.settled(0)
    bench.outbox.accepted(1, 0)
    assert bench.outbox.settled(3)


def test_what_is_queued_behind_a_refusal_is_sent_to_be_refused(bench):
    for _ in range(3):
        bench.add()
    bench.outbox.refused((1,), "closed", "it is closed")
    assert bench.batches() == [[1], [2, 3]]
    bench.outbox.unreported = False
    bench.outbox.refused((2, 3), "closed", "it is closed")
    assert (bench.outbox.pending, bench.outbox.unreported) == (0, False)


def test_reset_forgets_a_refusal(bench):
    bench.add()
    bench.outbox.refused((1,), "closed", "it is closed")
    bench.outbox.reset()
    assert (bench.outbox.refusal, bench.outbox.unreported) == (None, False)


def test_forget_takes_the_middle_out(bench):
    for _ in range(4):
        bench.add(inline=3_000_000, now=True)
    assert not bench.outbox.has_room(1)
    bench.outbox.forget((2, 3))
    assert bench.outbox.pending == 2
    assert bench.outbox.has_room(1)
    bench.outbox.accepted(2, 0)
    assert bench.outbox.pending == 0


def test_sending_nothing_sends_nothing(bench):
    assert not bench.outbox.send()
    assert bench.sent == []


def test_an_interrupt_while_a_message_is_given_away_neither_loses_nor_doubles_its_items():
    sent = []

    def push(message):
        sent.append(message)
        if len(sent) == 1:
            raise KeyboardInterrupt

    outbox = Outbox("c", push)
    with pytest.raises(KeyboardInterrupt):
        outbox.add((1, 1.0, None, 5, (b"",), ()), 5, now=True)
    assert outbox.send()
    assert [row[0] for _, _, rows in sent for row in rows] == [1]
    outbox.accepted(1, 0)
    assert outbox.pending == 0

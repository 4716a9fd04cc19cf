"""Channels that take so many items and no more, and producers that somebody looks after."""

from __future__ import annotations

import pytest

from rlinf_cli.state.channel import belongs
from rlinf_cli.state.channel_events import (
    Create,
    Declare,
    Done,
    Drop,
    Fail,
    Instruction,
    Join,
    Lend,
    Limit,
    Refuse,
    TellFull,
)

FIRST, SECOND, FUSED = 2, 3, 4


def only(kind: type, instructions: list[Instruction]) -> list[Instruction]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def lent(instructions: list[Instruction]) -> list[tuple[int, list[object]]]:
    """To whom, what."""
    return [(lend.client, [item.payload for item in lend.items]) for lend in only(Lend, instructions)]


def failures(instructions: list[Instruction]) -> list[tuple[int, str]]:
    return [(fail.client, fail.kind) for fail in only(Fail, instructions)]


class TestLimit:
    def test_it_closes_when_all_is_there(self, jobs):
        jobs.ask(Limit, 3)
        jobs.put("a", "b")
        assert not jobs.state.channels["jobs"].closed
        accept, refuse, release = jobs.put("c", "d", "e")
        assert (accept.count, len(refuse.numbers), refuse.kind, len(release.items)) == (1, 2, "full", 2)
        assert refuse.message == "channel 'jobs' has accepted all the 3 items that it was to take"
        assert only(Refuse, jobs.put("f"))[0].kind == "full"
        assert lent(jobs.get(9, at_least=9)) == [(FIRST, ["a", "b", "c"])]

    def test_reached_before_it_is_set(self, jobs):
        jobs.put("a", "b")
        jobs.get(4, at_least=4)
        assert lent(jobs.ask(Limit, 2)) == [(FIRST, ["a", "b"])]

    def test_what_is_offered_beyond_is_refused(self, jobs):
        jobs.ask(Create, 1, 0)
        jobs.put("a", "b", "c")
        jobs.ask(Limit, 2)
        refuse, *_ = only(Refuse, jobs.get(lease=False))
        assert len(refuse.numbers) == 1
        assert jobs.waiting() == ["b"]

    def test_what_returns_is_not_counted_again(self, jobs):
        jobs.ask(Limit, 2)
        jobs.put("a")
        jobs.lease()
        jobs.lose(FIRST)
        jobs.put("b")
        assert jobs.waiting() == ["a", "b"]

    def test_unfinished_producers_are_told_once(self, jobs):
        jobs.ask(Declare, ("reward[0]#1", "reward[1]#1", "actor[0]#1"))
        jobs.ask(Done, "reward[1]#1", None)
        jobs.ask(Limit, 1)
        told = only(TellFull, jobs.put("a"))
        assert [(one.client, one.channel, one.full) for one in told] == [(FIRST, "jobs", True), (FUSED, "jobs", True)]
        assert only(TellFull, jobs.ask(Limit, 1)) == []

    def test_a_producer_that_joins_again_is_told(self, jobs):
        jobs.ask(Declare, ("reward[0]#1",), True)
        jobs.ask(Limit, 1)
        jobs.put("a")
        jobs.lose(FIRST)
        assert jobs.handle(Join(7, "reward[0]")) == [TellFull(7, "jobs", True)]
        assert jobs.ask(Drop)[-1] == TellFull(7, "jobs", False)

    def test_a_full_channel_survives_its_producers(self, jobs):
        jobs.ask(Declare, ("reward[0]#1",))
        jobs.ask(Limit, 1)
        jobs.put("a")
        jobs.lose(FIRST)
        assert jobs.waiting() == ["a"]


@pytest.mark.parametrize("lease", [True, False])
def test_what_a_weight_limit_leaves_has_no_claim_to_room(jobs, lease):
    """The get asks for five items, and is content with the first: the others must not fill the channel."""
    jobs.ask(Create, 1, 0)
    jobs.get(5, at_least=5, weight=3.0, lease=lease)
    jobs.put(*"abcde", weight=4.0)
    assert jobs.waiting() == ["b"]


class TestGuarded:
    def test_the_loss_of_its_process_breaks_nothing(self, jobs):
        jobs.ask(Declare, ("reward[0]#1",), True)
        jobs.get(client=SECOND)
        assert jobs.lose(FIRST) == []
        assert failures(jobs.ask(Done, "reward[0]#1", None)) == [(SECOND, "closed")]

    def test_whoever_looks_after_it_may_break_the_channel(self, jobs):
        jobs.ask(Declare, ("reward[0]#1",), True)
        jobs.get(client=SECOND)
        jobs.lose(FIRST)
        [_, failure] = jobs.ask(Done, "reward[0]#1", "reward[0] died too often")
        assert (failure.client, failure.message) == (SECOND, "reward[0] died too often")

    def test_only_producers_declared_so_are_guarded(self, jobs):
        jobs.ask(Declare, ("reward[0]#1",), True)
        jobs.ask(Declare, ("reward[0]#2",))
        jobs.get(client=SECOND)
        assert failures(jobs.lose(FIRST)) == [(SECOND, "broken")]

    def test_the_latest_word_counts(self, jobs):
        jobs.ask(Declare, ("reward[0]#1",), True)
        jobs.ask(Declare, ("reward[0]#1",))
        jobs.get(client=SECOND)
        assert failures(jobs.lose(FIRST)) == [(SECOND, "broken")]

    def test_a_process_is_all_its_roles(self, jobs):
        jobs.ask(Declare, ("actor[0]#3",))
        jobs.get(client=SECOND)
        [failure] = jobs.lose(FUSED)
        assert failure.message == "rollout[0]+actor[0] died"

    @pytest.mark.parametrize(("producer", "identity", "expected"), [
        ("rollout[1]#7", "rollout[1]", True), ("rollout[1]", "rollout[11]", False), ("actor[0]#1.2", "rollout[0]+actor[0]", True),
        ("tor[0]", "rollout[0]+actor[0]", False), ("rollout[0]", "rollout[0]#1", False),
    ])  # fmt: skip
    def test_whose_a_producer_is(self, producer, identity, expected):
        assert belongs(producer, identity) is expected

"""Items that stay their channel's until what comes of them is there."""

from __future__ import annotations

import pytest

from rlinf_cli.state.channel_events import (
    Accept,
    Break,
    CancelAll,
    Close,
    Confirm,
    Create,
    Declare,
    Deliver,
    Drop,
    Fail,
    Get,
    Instruction,
    Item,
    LeaseId,
    Lend,
    Put,
    Refuse,
    Release,
    Withdraw,
)

DRIVER, FIRST, SECOND, FUSED = 1, 2, 3, 4


def only(kind: type, instructions: list[Instruction]) -> list[Instruction]:
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def lent(instructions: list[Instruction]) -> list[tuple[int, list[object]]]:
    """To whom, what."""
    return [(lend.client, [item.payload for item in lend.items]) for lend in only(Lend, instructions)]


def failures(instructions: list[Instruction]) -> list[tuple[int, str]]:
    return [(fail.client, fail.kind) for fail in only(Fail, instructions)]


class TestEndOfALease:
    def test_a_leased_item_is_nobody_elses(self, jobs):
        jobs.put("a", "b")
        jobs.lease()
        assert (jobs.waiting(), jobs.leased()) == (["b"], ["a"])
        assert lent(jobs.get(2, client=SECOND)) == [(SECOND, ["b"])]

    def test_settled_it_is_delivered_and_its_payload_can_go(self, jobs):
        jobs.put("a", "b")
        first, second = jobs.lease(2)
        [release] = jobs.settle(first)
        assert ([item.payload for item in release.items], release.reason) == (["a"], "settled")
        assert jobs.state.channels["jobs"].tally.delivered == 1
        jobs.settle(second)
        assert jobs.state.channels["jobs"].tally.delivered == 2

    def test_a_lost_clients_items_return_to_the_front_in_order(self, jobs):
        jobs.put(*"abcdef")
        jobs.lease(3)
        jobs.lose(FIRST)
        assert jobs.waiting() == [*"abcdef"]

    @pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
    def test_whoever_is_lost_first_the_old_order_returns(self, jobs, order):
        jobs.put(*"abcdef")
        jobs.lease(2, client=FIRST)
        jobs.lease(2, client=SECOND)
        for client in order:
            jobs.lose(client)
        assert jobs.waiting() == [*"abcdef"]

    def test_an_item_leased_again_keeps_its_place(self, jobs):
        jobs.put(*"abcd")
        jobs.lease(2, client=FIRST)
        jobs.lose(FIRST)
        again = jobs.lease(1, client=SECOND)
        jobs.lease(2, client=FUSED)
        jobs.give_back(*again, client=SECOND)
        jobs.lose(FUSED)
        assert jobs.waiting() == [*"abcd"]

    def test_a_returned_item_goes_to_whoever_waits(self, jobs):
        jobs.put("a")
        jobs.lease()
        jobs.get(client=SECOND)
        assert lent(jobs.lose(FIRST)) == [(SECOND, ["a"])]

    def test_a_returned_item_can_be_taken_for_good(self, jobs):
        jobs.put("a", "b")
        jobs.lease()
        jobs.lose(FIRST)
        [delivery] = only(Deliver, jobs.get(2, client=SECOND, lease=False))
        assert [item.payload for item in delivery.items] == ["a", "b"]
        jobs.put("c")
        assert jobs.waiting() == ["c"]

    def test_given_back_by_one_that_lives(self, jobs):
        jobs.put("a", "b")
        leases = jobs.lease(2)
        jobs.give_back(leases[1])
        assert (jobs.waiting(), jobs.leased()) == (["b"], ["a"])
        jobs.give_back(*leases, *leases)
        assert (jobs.waiting(), jobs.leased()) == (["a", "b"], [])

    def test_only_its_holder_ends_a_lease_and_only_once(self, jobs):
        jobs.put("a")
        leases = jobs.lease()
        assert jobs.settle(*leases, client=SECOND) == []
        assert jobs.give_back(*leases, client=SECOND) == []
        jobs.settle(*leases)
        assert jobs.settle(*leases) == []
        assert jobs.give_back(*leases) == []

    def test_the_number_of_a_lease_is_not_used_again(self, jobs):
        jobs.put("a")
        [old] = jobs.lease()
        jobs.give_back(old)
        [new] = jobs.lease()
        assert jobs.settle(old) == []
        assert new != old
        assert len(jobs.settle(new)) == 1

    def test_keys_return_to_their_queues(self, jobs):
        jobs.put("a", key="x")
        jobs.put("b")
        jobs.lease(key="x")
        jobs.lease()
        jobs.lose(FIRST)
        assert (jobs.waiting(key="x"), jobs.waiting()) == (["a"], ["b"])

    def test_a_weight_limits_a_lease(self, jobs):
        jobs.put("a", "b", "c", weight=2.0)
        assert lent(jobs.get(3, weight=4.0)) == [(FIRST, ["a", "b"])]

    def test_a_poll_leases_nothing(self, jobs):
        [lend] = jobs.get(3, at_least=0)
        assert (lend.items, lend.leases) == ((), ())

    def test_returned_items_may_exceed_the_capacity(self, jobs):
        jobs.ask(Create, 1, 0)
        jobs.put("a", "b")
        jobs.lease()
        jobs.lose(FIRST)
        assert jobs.waiting() == ["a", "b"]
        assert jobs.put("c") == []


class TestResults:
    """A lease that a put settles."""

    def test_it_ends_in_the_moment_in_which_the_result_is_there(self, jobs):
        jobs.put("a")
        leases = jobs.lease()
        instructions = jobs.put("A", channel="results", client=FIRST, settles=leases)
        assert [type(instruction) for instruction in instructions] == [Accept, Release]
        assert (jobs.leased(), jobs.waiting("results")) == ([], ["A"])

    def test_what_was_put_before_the_death_counts(self, jobs):
        jobs.put("a", "b")
        leases = jobs.lease(2)
        jobs.put("A", channel="results", client=FIRST, settles=leases[:1])
        jobs.lose(FIRST)
        assert (jobs.waiting(), jobs.waiting("results")) == (["b"], ["A"])

    def test_a_result_that_has_no_room_yet_settles_nothing_yet(self, jobs):
        jobs.ask(Create, 1, 0, channel="results")
        jobs.put("a", "b")
        first, second = jobs.lease(2)
        jobs.put("A", channel="results", client=FIRST, settles=(first,))
        jobs.put("B", channel="results", client=FIRST, settles=(second,))
        assert jobs.leased() == ["b"]
        jobs.get(channel="results", client=DRIVER, lease=False)
        assert jobs.leased() == []

    def test_a_result_offered_before_the_death_counts_too(self, jobs):
        self.offered(jobs)
        jobs.lose(FIRST)
        assert (jobs.waiting(), jobs.leased()) == ([], ["a"])
        jobs.get(channel="results", client=DRIVER, lease=False)
        assert (jobs.waiting("results"), jobs.leased()) == (["A"], [])

    def test_a_result_that_is_refused_after_the_death_returns_the_item(self, jobs):
        self.offered(jobs)
        jobs.get(client=SECOND)
        jobs.lose(FIRST)
        assert lent(jobs.ask(Drop, channel="results")) == [(SECOND, ["a"])]

    def test_a_result_that_is_refused_leaves_the_lease(self, jobs):
        [lease] = self.offered(jobs)
        jobs.ask(Drop, channel="results")
        assert jobs.leased() == ["a"]
        jobs.put("A", channel="results", client=FIRST, settles=(lease,))
        assert jobs.leased() == []

    def test_a_result_for_a_closed_channel_leaves_the_lease(self, jobs):
        jobs.put("a")
        leases = jobs.lease()
        jobs.ask(Close, channel="results")
        assert only(Refuse, jobs.put("A", channel="results", client=FIRST, settles=leases))
        assert jobs.leased() == ["a"]

    def test_a_result_that_is_withdrawn_leaves_the_lease(self, jobs):
        self.offered(jobs)
        jobs.ask(Withdraw, 0, 1000, channel="results", client=FIRST)
        assert jobs.leased() == ["a"]

    def test_given_back_with_its_result_under_way_it_waits_for_that(self, jobs):
        leases = self.offered(jobs)
        jobs.give_back(*leases)
        assert (jobs.waiting(), jobs.leased()) == ([], ["a"])
        jobs.ask(Withdraw, 0, 1000, channel="results", client=FIRST)
        assert (jobs.waiting(), jobs.leased()) == (["a"], [])

    def test_a_dead_workers_broken_output_returns_its_items(self, jobs):
        """All in one event: its process was the declared producer of the channel that its result was offered to."""
        self.offered(jobs)
        jobs.ask(Declare, ("reward[0]#1",), channel="results")
        jobs.get(client=SECOND)
        assert lent(jobs.lose(FIRST)) == [(SECOND, ["a"])]

    def test_a_result_may_settle_leases_of_several_channels(self, jobs):
        jobs.put("a")
        jobs.put("b", channel="hints")
        leases = (*jobs.lease(), *jobs.lease(channel="hints"))
        jobs.put("A", channel="results", client=FIRST, settles=leases)
        assert (jobs.leased(), jobs.leased("hints")) == ([], [])

    def test_a_result_may_go_back_to_its_own_channel(self, jobs):
        jobs.put("turn 1")
        leases = jobs.lease()
        jobs.put("turn 2", client=FIRST, settles=leases)
        assert (jobs.waiting(), jobs.leased()) == (["turn 2"], [])

    def offered(self, jobs) -> tuple[LeaseId, ...]:
        """Item `a` is leased, its result `A` offered to a channel that is full."""
        jobs.ask(Create, 1, 0, channel="results")
        jobs.put("other", channel="results")
        jobs.put("a")
        leases = jobs.lease()
        jobs.put("A", channel="results", client=FIRST, settles=leases)
        return leases


class TestClosed:
    def test_it_ends_with_the_last_lease(self, jobs):
        jobs.put("a", "b")
        leases = jobs.lease(2)
        jobs.ask(Close)
        assert jobs.get(client=SECOND) == []
        assert failures(jobs.settle(leases[0])) == []
        assert failures(jobs.settle(leases[1])) == [(SECOND, "closed")]

    def test_it_ends_with_the_result_of_the_last_lease(self, jobs):
        jobs.put("a")
        leases = jobs.lease()
        jobs.ask(Close)
        jobs.get(client=SECOND)
        assert failures(jobs.put("A", channel="results", client=FIRST, settles=leases)) == [(SECOND, "closed")]

    def test_who_waits_gets_what_returns(self, jobs):
        jobs.put("a", "b")
        jobs.lease(2)
        jobs.ask(Close)
        jobs.get(4, at_least=4, client=SECOND)
        assert lent(jobs.lose(FIRST)) == [(SECOND, ["a", "b"])]

    def test_what_is_there_is_not_held_back_for_what_may_return(self, jobs):
        jobs.put("a", "b")
        jobs.lease()
        jobs.ask(Close)
        assert lent(jobs.get(4, at_least=4, client=SECOND)) == [(SECOND, ["b"])]

    def test_a_poll_finds_nothing_while_a_lease_is_open(self, jobs):
        jobs.put("a")
        leases = jobs.lease()
        jobs.ask(Close)
        assert lent(jobs.get(at_least=0, client=SECOND)) == [(SECOND, [])]
        jobs.settle(*leases)
        assert failures(jobs.get(at_least=0, client=SECOND)) == [(SECOND, "closed")]

    def test_leases_of_another_key_hold_nobody_up(self, jobs):
        jobs.put("a", key="x")
        jobs.lease(key="x")
        jobs.ask(Close)
        assert failures(jobs.get(client=SECOND, key="y")) == [(SECOND, "closed")]
        assert jobs.get(client=SECOND, key="x") == []

    def test_a_drop_discards_what_is_leased(self, jobs):
        jobs.put("a", "b")
        leases = jobs.lease()
        confirm, release = jobs.ask(Drop)
        assert (confirm.value, {item.payload for item in release.items}) == (2, {"a", "b"})
        assert jobs.settle(*leases) == jobs.give_back(*leases) == []

    def test_a_break_ends_leases(self, jobs):
        jobs.put("a")
        leases = jobs.lease()
        jobs.handle(CancelAll("interrupted"))
        assert jobs.leased() == []
        assert jobs.settle(*leases) == jobs.lose(FIRST) == []


class TestBalance:
    def test_the_least_loaded_client_is_served_first(self, jobs):
        jobs.put("heavy", weight=5.0)
        jobs.lease(client=FIRST)
        jobs.put("light", weight=1.0)
        jobs.lease(client=SECOND)
        jobs.get(client=FIRST)
        jobs.get(client=SECOND)
        assert lent(jobs.put("next")) == [(SECOND, ["next"])]

    def test_load_counts_while_several_items_are_dealt_out(self, jobs):
        for client in (FIRST, FIRST, SECOND):
            jobs.get(client=client)
        assert lent(jobs.put("a", "b", "c")) == [(FIRST, ["a"]), (SECOND, ["b"]), (FIRST, ["c"])]

    def test_equal_load_is_served_in_order_of_arrival(self, jobs):
        for client in (SECOND, FIRST):
            jobs.get(client=client)
        assert lent(jobs.put("a", "b")) == [(SECOND, ["a"]), (FIRST, ["b"])]

    def test_what_is_settled_is_no_load(self, jobs):
        jobs.put("a", weight=9.0)
        jobs.settle(*jobs.lease(client=FIRST))
        jobs.put("b")
        jobs.lease(client=SECOND)
        jobs.get(client=SECOND)
        jobs.get(client=FIRST)
        assert lent(jobs.put("c")) == [(FIRST, ["c"])]

    def test_one_that_asks_for_more_than_there_is_holds_nobody_up(self, jobs):
        jobs.put("a")
        jobs.lease(client=SECOND)
        jobs.get(4, at_least=4, client=FIRST)
        jobs.get(client=SECOND)
        assert lent(jobs.put("b")) == [(SECOND, ["b"])]


def test_a_step_of_two_roles_leaves_nothing(jobs):
    """Leases of thousands of steps, whose channels are dropped."""
    for step in range(1000):
        todo, results = f"jobs-{step}", f"results-{step}"
        jobs.state.handle(Put(DRIVER, todo, (Item(DRIVER, step, 1.0, None, 1, None),)))
        [lend] = jobs.state.handle(Get(FIRST, step, todo, 1, 1, None, None, True))
        settles = (LeaseId(todo, lend.leases[0]),)
        jobs.state.handle(Put(FIRST, results, (Item(FIRST, step, 1.0, None, 1, None, settles),)))
        for channel in (todo, results):
            assert isinstance(jobs.state.handle(Drop(DRIVER, step, channel))[0], Confirm)
    assert jobs.state.channels == {}


def test_a_channel_that_is_broken_off_holds_nobody_up_though_it_was_closed(jobs):
    jobs.put("a", "b")
    jobs.ask(Close)
    leases = jobs.lease(2)
    [] = jobs.get(client=SECOND)  # waits, since what is leased may come back
    told = jobs.ask(Break, "the run was interrupted")
    assert [(one.client, one.kind, one.message) for one in told if isinstance(one, Fail)] == [
        (SECOND, "broken", "the run was interrupted")]
    assert jobs.leased() == []
    jobs.settle(*leases)  # too late, and no error
    assert [one.kind for one in jobs.get(client=SECOND)] == ["broken"]

"""Several calls with one engine: who drives, who gets what, who comes first, and what happens when something fails."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rlinf_cli.contracts.engine import Request, Sampling
from rlinf_cli.errors import RunError
from rlinf_cli.workers.engine_share import EngineShare, Usage

PATIENCE_S = 20.0


def requests(name, *lengths):
    return [Request(f"{name}/{number:04d}", np.ones(2, np.int32), Sampling(length)) for number, length in enumerate(lengths)]


def finish(share, stake, count):
    """So many completions of a call."""
    ended, deadline = [], time.monotonic() + PATIENCE_S
    while len(ended) < count:
        assert time.monotonic() < deadline
        ended += share.collect(stake, 0.05)
    return ended


def fail(share, batch):
    with share.stake() as stake:
        share.submit(stake, batch)
        raise KeyError("its own")


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def engine(scripted):
    return scripted()


@pytest.fixture
def share(engine):
    return EngineShare(engine)


def test_each_call_gets_its_own(share, engine):
    def call(name):
        with share.stake() as stake:
            ended = []
            for lengths in ((3, 9, 2), (5, 1)):
                share.submit(stake, requests(f"{name}-{len(lengths)}", *lengths))
                ended += finish(share, stake, len(lengths))
            return [(one.id, len(one.token_ids)) for one in ended]

    with ThreadPoolExecutor(4) as pool:
        for name, ended in zip("abcd", pool.map(call, "abcd"), strict=True):
            assert sorted(ended) == [(f"{name}-2/0000", 5), (f"{name}-2/0001", 1), (f"{name}-3/0000", 3),
                                     (f"{name}-3/0001", 9), (f"{name}-3/0002", 2)]
    assert engine.most > 3, "they must be under way together"


def test_a_call_is_served_by_whoever_drives(share, engine):
    """One waits while the other drives; when that one has gone, it drives itself."""
    with share.stake() as long, share.stake() as short, ThreadPoolExecutor(2) as pool:
        share.submit(long, requests("long", 40))
        share.submit(short, requests("short", 10))
        both = [pool.submit(finish, share, stake, 1) for stake in (long, short)]
        assert [len(one.result()[0].token_ids) for one in both] == [40, 10]
    assert engine.steps <= 41, "nothing may be done twice"


def test_a_call_can_submit_while_another_drives(share):
    with share.stake() as first, share.stake() as second, ThreadPoolExecutor(1) as pool:
        share.submit(first, requests("first", 10**6))
        driving = pool.submit(finish, share, first, 1)
        share.submit(second, requests("second", 1))
        assert finish(share, second, 1)[0].id == "second/0000"
        share.engine.abort()
        assert driving.result()[0].finish == "abort"


def test_collecting_ends_with_its_time(share):
    with share.stake() as stake:
        share.submit(stake, requests("a", 10**6))
        began = time.monotonic()
        assert share.collect(stake, 0.03) == []
        assert 0.03 <= time.monotonic() - began < 5


def test_an_error_of_the_engine_reaches_every_call(share, engine):
    def call(name):
        with share.stake() as stake:
            share.submit(stake, requests(name, 10**6))
            finish(share, stake, 1)

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(call, name) for name in "abc"]
        until(lambda: len(engine._running) == 3)
        engine.fails = FloatingPointError("no logits")
        for one in calls:
            with pytest.raises(FloatingPointError, match="no logits"):
                one.result()
    engine.fails = None
    engine.abort()
    with share.stake() as stake:  # completions of the calls that have failed are nobody's
        share.submit(stake, requests("d", 2))
        assert [one.id for one in finish(share, stake, 1)] == ["d/0000"]


def test_an_engine_that_cannot_say_what_it_did_has_failed_like_any_other(share, engine):
    engine.stats = dict
    for _ in range(2):  # nobody waits for ever for who drove it
        with share.stake() as stake:
            share.submit(stake, requests("a", 3))
            with pytest.raises(KeyError, match="steps"):
                share.collect(stake, PATIENCE_S)


def test_what_driving_it_took_is_known_by_active_responses_until_it_is_asked(share, engine):
    with share.stake() as stake:
        share.submit(stake, requests("a", 4, 4, 4))
        finish(share, stake, 3)
        usage = share.usage()
        assert (usage.slots, usage.mixed, usage.read) == (engine.capacity, {}, 0)
        assert set(usage.decoding) == {3}
        assert usage.decoding[3][0] == engine.steps
        assert usage.decoding[3][1] > 0
        assert share.usage().decoding == {}


def test_steps_in_which_prompts_were_read_are_apart():
    usage = Usage(4)
    usage.add(2, 5, 0.5, 0)
    usage.add(2, 1, 0.4, 30)
    usage.add(2, 5, 0.7, 0)
    assert usage.decoding == {2: [10, 1.2]}
    assert (usage.mixed, usage.read) == ({2: [1, 0.4]}, 30)


def test_steps_that_an_engine_makes_by_itself_are_apart(share, engine):
    with share.stake() as stake:
        share.submit(stake, requests("call", 3, 3))
        engine.steps += 7
        finish(share, stake, 2)
    usage = share.usage()
    assert usage.undriven[2] == 7
    known = usage.occupied
    assert known > 0
    assert share.usage().occupied == 0
    assert sum(steps for steps, _ in usage.decoding.values()) + sum(steps for steps, _ in usage.mixed.values()) == 3


def test_a_call_that_fails_leaves_nothing_in_the_engine(share, engine):
    with share.stake() as other:
        share.submit(other, requests("other", 10**6))
        with pytest.raises(KeyError, match="its own"):
            fail(share, requests("a", 10**6, 10**6, 10**6, 10**6))
        assert [one[0] for one in engine._running + engine._waiting] == ["other/0000"]
        with share.stake() as again:
            share.submit(again, requests("a", 1))
            assert len(finish(share, again, 1)) == 1


def test_what_is_withdrawn_has_what_it_had(share):
    with share.stake() as stake:
        share.submit(stake, requests("a", 3, 10**6))
        assert len(finish(share, stake, 1)) == 1
        (left,) = share.withdraw(stake)
        assert (left.id, left.finish) == ("a/0001", "abort")
        assert len(left.token_ids) >= 3
        assert not stake.ids


class TestRoom:
    def test_of_a_call_that_is_alone(self, share):
        with share.stake() as stake:
            assert share.room(stake, 2, 9) == 2
            assert share.room(stake, 8, 9) == 1, "the engine has nothing to do"
            share.submit(stake, requests("a", 9, 9))
            assert share.room(stake, 2, 9) == 1
            assert share.room(stake, 8, 9) == 0

    def test_a_later_call_waits_for_the_wishes_of_an_earlier_one(self, share):
        with share.stake() as first, share.stake() as second, share.stake() as third:
            assert (share.room(first, 1, 9), share.room(second, 1, 9), share.room(third, 1, 9)) == (4, 0, 0)
            share.tell(first, wants=False)
            assert (share.room(second, 1, 9), share.room(third, 1, 9)) == (4, 0)
            share.tell(second, wants=False)
            assert share.room(third, 1, 9) == 4
            share.tell(first, wants=True)
            assert share.room(third, 1, 9) == 0

    def test_is_promised_until_the_requests_are_submitted(self, share):
        with share.stake() as first, share.stake() as second:
            assert share.room(first, 1, 3) == 3
            share.tell(first, wants=False, promised=3)
            assert share.room(second, 1, 9) == 1
            share.tell(second, wants=True, promised=0)
            share.submit(first, requests("a", 9))
            assert share.room(second, 1, 9) == 3

    def test_of_requests_that_wait_in_the_engine(self, engine):
        share = EngineShare(engine, ahead=2)
        with share.stake() as stake:
            share.submit(stake, requests("a", 9, 9, 9, 9, 9))
            assert share.room(stake, 1, 9) == 1

    def test_is_left_by_calls_that_have_ended(self, share):
        with share.stake() as later:
            pass
        with share.stake() as first:
            with share.stake() as second:
                assert share.room(second, 1, 9) == 0
            assert share.room(first, 1, 9) == 4
        assert not share._stakes
        assert not later.ids

    def test_is_waited_for(self, share):
        with share.stake() as first, share.stake() as second, ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(share.await_room, PATIENCE_S)
            until(lambda: share._changed._waiters)
            share.tell(first, wants=False)
            waiting.result(PATIENCE_S)
            assert share.room(second, 1, 9) == 4


class TestEvaluation:
    def update(self, share):
        with share.updating():
            share.engine.version += 1

    def test_sees_one_version_and_the_update_comes_after_it(self, share, engine):
        """Scenario S3."""
        with ThreadPoolExecutor(1) as pool:
            with share.stake() as evaluation, share.stake() as training:
                share.begin_evaluation(evaluation)
                share.submit(evaluation, requests("eval", 3, 20))
                share.submit(training, requests("0-1", 60))
                early = finish(share, evaluation, 1)
                update = pool.submit(self.update, share)
                until(lambda: share._updates)
                share.begin_evaluation(evaluation)  # more prompts of the same call
                share.submit(evaluation, requests("more", 5))
                late = finish(share, evaluation, 2)
                assert {version for one in early + late for version in one.versions} == {0}
                assert not update.done()
            update.result(PATIENCE_S)
            assert engine.version == 1

    def test_does_not_hold_back_training(self, share, engine):
        with share.stake() as training:
            share.submit(training, requests("0-1", 10**6))
            assert share.collect(training, 0.01) == []
            self.update(share)
            assert share.collect(training, 0.01) == []
            (left,) = share.withdraw(training)
            assert set(left.versions.tolist()) == {0, 1}

    def test_that_comes_while_an_update_waits_comes_after_it(self, share, engine):
        def evaluate():
            with share.stake() as stake:
                share.begin_evaluation(stake)
                share.submit(stake, requests("late", 3))
                return finish(share, stake, 1)[0].versions.tolist()

        with ThreadPoolExecutor(2) as pool:
            with share.stake() as evaluation:
                share.begin_evaluation(evaluation)
                update = pool.submit(self.update, share)
                until(lambda: share._updates)
                late = pool.submit(evaluate)
                time.sleep(0.02)
                assert not update.done()
                assert not late.done()
            assert late.result(PATIENCE_S) == [1, 1, 1]
            update.result(PATIENCE_S)

    def test_no_update_is_lost_among_many_evaluations(self, share, engine):
        stop = threading.Event()

        def evaluate(number):
            seen = []
            while not stop.is_set():
                with share.stake() as stake:
                    share.begin_evaluation(stake)
                    share.submit(stake, requests(f"eval-{number}-{len(seen)}", 2, 3))
                    seen.append({version for one in finish(share, stake, 2) for version in one.versions})
            return seen

        with ThreadPoolExecutor(4) as pool:
            evaluations = [pool.submit(evaluate, number) for number in range(3)]
            for _ in range(10):
                pool.submit(self.update, share).result(PATIENCE_S)
            stop.set()
            assert all(len(versions) == 1 for one in evaluations for versions in one.result())
        assert engine.version == 10

    def test_an_update_that_fails_lets_the_next_one_in(self, share, engine):
        with pytest.raises(ValueError, match="missing"), share.updating():
            raise ValueError("missing: a")
        self.update(share)
        assert engine.version == 1


class TestClose:
    def test_ends_the_calls_that_run(self, share, engine):
        def call(name):
            with share.stake() as stake:
                share.submit(stake, requests(name, 10**6))
                finish(share, stake, 1)

        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(call, name) for name in "ab"]
            until(lambda: len(engine._running) == 2)
            share.close()
            for one in calls:
                with pytest.raises(RunError, match="the engine is closed"):
                    one.result(PATIENCE_S)
        assert engine.closed

    def test_is_for_good(self, share):
        share.close()
        with share.stake() as stake, pytest.raises(RunError, match="the engine is closed"):
            share.collect(stake, 1)
        with pytest.raises(RunError, match="the engine is closed"), share.updating():
            pass

    def test_ends_an_update_that_an_evaluation_holds_back(self, share):
        def update():
            with share.updating():
                pass

        with ThreadPoolExecutor(1) as pool, share.stake() as evaluation:
            share.begin_evaluation(evaluation)
            held = pool.submit(update)
            until(lambda: share._updates)
            share.close()
            with pytest.raises(RunError, match="the engine is closed"):
                held.result(PATIENCE_S)

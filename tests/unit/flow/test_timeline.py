"""Where a call's time goes: spans of waiting, of which a call has few however often it waits."""

import json
import threading
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.flow import timeline
from rlinf_cli.flow.timeline import (
    CLOCK,
    MOST_SPANS,
    RECENT_S,
    Call,
    Calls,
    CallTiming,
    Recorder,
    coarser,
    recast,
    spent,
    waited_for,
)


@pytest.fixture
def clock(monkeypatch):
    """`clock(seconds)` lets time go by."""
    now = [100.0]
    monkeypatch.setattr(timeline.time, "monotonic", lambda: now[0])

    def pass_(seconds):
        now[0] += seconds

    return pass_


def test_waits_are_spans_and_the_rest_is_compute(clock):
    with timeline.call() as recorder:
        clock(1.0)
        with spent("wait_data"):
            clock(0.5)
        clock(0.25)
        with spent("sync"):
            clock(0.125)
    timing = recorder.timing
    assert (timing.began, timing.total) == (100.0, 1.875)
    assert timing.spans == ((1.0, 1.5, "wait_data"), (1.75, 1.875, "sync"))
    assert timing.kinds == {"wait_data": 0.5, "sync": 0.125}
    assert timing.compute == 1.25


def test_a_wait_within_another_is_its_own(clock):
    with timeline.call() as recorder, spent("onload"):
        clock(1.0)
        with spent("wait_lock"):
            clock(2.0)
        clock(0.5)
    assert recorder.timing.spans == ((0.0, 1.0, "onload"), (1.0, 3.0, "wait_lock"), (3.0, 3.5, "onload"))
    assert recorder.timing.compute == 0.0


def test_a_wait_that_fails_is_charged_too(clock):
    def get():
        with spent("wait_space"):
            clock(0.5)
            raise TimeoutError

    with timeline.call() as recorder, pytest.raises(TimeoutError):
        get()
    assert recorder.timing.kinds == {"wait_space": 0.5}
    assert recorder.timing.total == 0.5


def test_outside_of_a_call_nothing_is_recorded():
    with spent("wait_data"):
        waited_for(Call("rollout", 0, "ping", CallTiming()))
    with timeline.call() as recorder:
        pass
    assert recorder.timing.spans == recorder.timing.calls == ()


def test_a_call_inside_a_call_is_the_inner_ones(clock):
    with timeline.call() as outer:
        with timeline.call() as inner, spent("wait_data"):
            clock(1.0)
        with spent("sync"):
            clock(1.0)
    assert inner.timing.kinds == {"wait_data": 1.0}
    assert outer.timing.kinds == {"sync": 1.0}


def test_a_call_knows_what_it_waited_for():
    other = Call("rollout", 1, "update_weights", CallTiming(5.0, 1.0), beside=True)
    with timeline.call() as recorder:
        waited_for(other)
    assert recorder.timing.calls == (other,)
    call = Call("actor", 0, "publish_weights", recorder.timing)
    assert list(call.everything()) == [call, other]


def test_tiny_waits_within_a_millisecond_become_one(clock):
    with timeline.call() as recorder:
        for _ in range(8):
            with spent("wait_data"):
                clock(0.0001)
            clock(0.00001)
        clock(1.0)
        with spent("wait_data"):
            clock(0.0001)
    first, second = recorder.timing.spans
    assert first[:2] == pytest.approx((0.0, 0.0008))
    assert second[1] - second[0] == pytest.approx(0.0001)
    assert recorder.timing.compute == pytest.approx(1.00008)


@pytest.mark.parametrize("kinds", [["wait_data"], ["wait_data", "wait_space"], ["wait_data", "sync", "onload", "wait_lock"]])
@pytest.mark.parametrize("wait", [0.00001, 0.002])
def test_a_call_has_few_spans_however_often_it_waits(clock, kinds, wait):
    with timeline.call() as recorder:
        for number in range(3000):
            with spent(kinds[number % len(kinds)]):
                clock(wait)
            clock(0.0015)
    timing = recorder.timing
    assert len(timing.spans) <= MOST_SPANS
    assert sum(timing.kinds.values()) == pytest.approx(3000 * wait)
    assert timing.compute == pytest.approx(3000 * 0.0015)
    assert recorder.grain < timing.total / 16  # it is still known when it waited
    for _, end, _ in timing.spans[::10]:
        assert 0 <= end <= timing.total + 1e-9


PIECES = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.sampled_from(["sync", "wait_data", "wait_space"])), max_size=40)


@given(PIECES, st.floats(0, 3))
def test_coarser_spans_keep_every_second_and_their_order(pieces, grain):
    spans, at = [], 0.0
    for gap, length, kind in pieces:
        spans.append((at + gap, at + gap + length, kind))
        at += gap + length
    coarse = coarser(spans, grain)
    assert len(coarse) <= len(spans)
    assert CallTiming(0, at, tuple(coarse)).kinds == pytest.approx(CallTiming(0, at, tuple(spans)).kinds)
    for (_, end, _), (start, _, _) in pairwise(coarse):
        assert end <= start + 1e-9
    if coarse:
        assert coarse[0][0] >= 0
        assert coarse[-1][1] <= at + 1e-9
    assert {kind for _, _, kind in coarse} == {kind for _, _, kind in spans}


def test_a_timing_arrives_as_it_was():
    timing = CallTiming(5.0, 2.0, ((0.5, 1.0, "sync"),), (Call("rollout", 0, "update_weights", CallTiming(5.5, 0.4), True),))
    assert CallTiming.unpack(json.loads(json.dumps(timing.pack()))) == timing


def test_another_machines_time_is_shifted_with_all_that_it_tells():
    inner = Call("rollout", 0, "update_weights", CallTiming(6.0, 0.5))
    shifted = CallTiming(5.0, 2.0, ((0.5, 1.0, "sync"),), (inner,)).shifted(-3.0)
    assert (shifted.began, shifted.total, shifted.spans) == (2.0, 2.0, ((0.5, 1.0, "sync"),))
    assert shifted.calls[0].timing.began == 3.0


def test_the_clock_tells_the_time_of_day():
    assert time.monotonic() + CLOCK == pytest.approx(time.time(), abs=5)


def test_recording_costs_next_to_nothing():
    def seconds(count):
        began = time.thread_time()
        for _ in range(count):
            with spent("wait_data"):
                pass
        return time.thread_time() - began

    with timeline.call():
        best = min(seconds(2000) for _ in range(5)) / 2000
    assert best < 20e-6  # 2 µs, but machines differ


def test_a_recorder_of_its_own():
    recorder = Recorder(time.monotonic())
    assert recorder.switch("sync") is None
    assert recorder.switch(None) == "sync"


class TestCallsOfAWorker:
    """What another thread is told of them."""

    def test_one_under_way_is_told_as_if_it_ended_now(self, clock):
        calls = Calls()
        with calls.call("generate"):
            clock(1.0)
            with spent("wait_data"):
                clock(0.5)
                ((method, timing),) = calls.now()
                assert method == "generate"
                assert (timing.began, timing.total, timing.spans) == (100.0, 1.5, ((1.0, 1.5, "wait_data"),))
            clock(2.0)
            ((_, timing),) = calls.now()
            assert timing.spans == ((1.0, 1.5, "wait_data"),)
            assert timing.compute == 3.0

    def test_one_that_has_ended_is_remembered_as_it_is_answered_for_a_moment(self, clock):
        calls = Calls()
        with calls.call("train") as recorder:
            clock(1.0)
        assert calls.now() == [("train", recorder.timing)]
        clock(RECENT_S + 0.1)
        assert calls.now() == []

    def fail_after(self, calls, clock):
        with calls.call("update_weights"):
            clock(0.25)
            raise ValueError("no")

    def test_several_at_once_and_one_that_fails(self, clock):
        calls = Calls()
        with calls.call("generate"):
            clock(1.0)
            with pytest.raises(ValueError, match="no"):
                self.fail_after(calls, clock)
            assert [(method, timing.began, timing.total) for method, timing in calls.now()] == [
                ("update_weights", 101.0, 0.25), ("generate", 100.0, 1.25)]

    def test_the_calls_that_it_waited_for_are_told_with_it(self, clock):
        calls, other = Calls(), Call("rollout", 0, "update_weights", CallTiming(100.0, 0.5))
        with calls.call("publish_weights"):
            waited_for(other)
            assert calls.now()[0][1].calls == (other,)

    def test_a_look_in_the_middle_of_a_wait_loses_no_time(self):
        """Whatever instant it is: the spans, of a thread that only waits, are all of the call."""
        calls, stop, seen = Calls(), threading.Event(), []

        def wait():
            with calls.call("get"):
                while not stop.is_set():
                    with spent("wait_data"):
                        time.sleep(0.0002)

        thread = threading.Thread(target=wait)
        thread.start()
        while len(seen) < 200:
            seen += [timing for _, timing in calls.now()]
        stop.set()
        thread.join()
        for timing in seen:
            assert sum(end - start for start, end, _ in timing.spans) <= timing.total + 1e-9
            assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(timing.spans))


def test_the_end_of_a_wait_that_was_of_another_kind(clock):
    with timeline.call() as recorder:
        clock(1.0)
        with spent("wait_lock"):
            clock(3.0)
        recast(2.0, "offload")
        with spent("onload"):
            clock(0.5)
    assert recorder.timing.spans == ((1.0, 2.0, "wait_lock"), (2.0, 4.0, "offload"), (4.0, 4.5, "onload"))


@pytest.mark.parametrize(("seconds", "spans"), [
    (0.0, ((0.0, 1.0, "wait_lock"),)),
    (5.0, ((0.0, 1.0, "offload"),))])
def test_no_more_is_recast_than_there_was(clock, seconds, spans):
    """What others needed for may have begun before the wait did."""
    with timeline.call() as recorder:
        with spent("wait_lock"):
            clock(1.0)
        recast(seconds, "offload")
    assert recorder.timing.spans == spans


def test_recasting_outside_of_a_call_is_nothing():
    recast(1.0, "offload")

"""Every second of a device is one of compute, sync, onload, offload, waiting for a lock, space or data, and idle."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.flow.timeline import Call, CallTiming
from rlinf_cli.runs.breakdown import STATES, WAITS, Placed, break_down, mean, pieces, step_time


def call(role, began, ended, *spans, rank=0, devices=(0,)):
    """Spans: (begin, end, kind) in the clock of the step."""
    timing = CallTiming(began, ended - began, tuple((start - began, end - began, kind) for start, end, kind in spans))
    return Placed(Call(role, rank, "work", timing), devices)


def spent(calls, device=0, devices=(0,), began=0.0, ended=10.0):
    """What is not zero."""
    found = break_down(calls, devices, began, ended).devices[device]
    return {state: seconds for state, seconds in found.items() if seconds}


def test_roles_that_take_turns():
    assert spent([call("rollout", 1, 4), call("actor", 4, 9)]) == {"rollout": 3, "actor": 5, "idle": 2}


def test_a_device_without_a_call_is_idle():
    assert spent([]) == {"idle": 10}
    assert spent([call("rollout", 0, 10, devices=(1,))], devices=(0, 1)) == {"idle": 10}


def test_computing_hides_what_others_wait_for():
    waiting = call("reward", 0, 10, (0, 10, "wait_data"))
    assert spent([waiting, call("rollout", 2, 5)]) == {"rollout": 3, "wait_data": 7}


@pytest.mark.parametrize(("kind", "hidden"), list(pairwise(WAITS)))
def test_of_several_waits_the_more_telling_one_counts(kind, hidden):
    calls = [call("a", 0, 6, (0, 6, hidden)), call("b", 2, 4, (2, 4, kind))]
    assert spent(calls, ended=6.0) == {kind: 2, hidden: 4}


def test_roles_that_compute_at_once_share_the_time():
    calls = [call("rollout", 0, 10), call("reward", 4, 8), call("reward", 4, 8, rank=1)]
    assert spent(calls) == {"rollout": pytest.approx(6 + 4 / 3), "reward": pytest.approx(4 * 2 / 3)}


def test_a_rank_counts_once_however_many_of_its_calls_compute():
    calls = [call("rollout", 0, 6), call("rollout", 2, 10), call("reward", 2, 10, rank=0)]
    assert spent(calls) == {"rollout": 6, "reward": 4}


def test_a_rank_counts_on_each_of_its_devices():
    calls = [call("actor", 0, 5, (1, 2, "sync"), devices=(0, 1))]
    for device in (0, 1):
        assert spent(calls, device, (0, 1)) == {"actor": 4, "sync": 1, "idle": 5}


def test_what_lies_outside_of_the_step_does_not_count():
    assert spent([call("rollout", -5, 3, (-4, 1, "wait_data")), call("actor", 9, 20)]) == {
        "wait_data": 1, "rollout": 2, "idle": 6, "actor": 1}


def test_metrics_are_means_over_devices_and_add_up():
    calls = [call("reward", 0, 4), call("actor", 2, 10, (2, 4, "wait_data"), rank=1, devices=(1,))]
    metrics = break_down(calls, (0, 1), 0.0, 10.0).metrics()
    assert metrics == {
        "timing/step_s": 10.0, "timing/reward_s": 2.0, "timing/actor_s": 3.0, "timing/sync_s": 0.0, "timing/onload_s": 0.0,
        "timing/offload_s": 0.0, "timing/wait_lock_s": 0.0, "timing/wait_space_s": 0.0, "timing/wait_data_s": 1.0,
        "timing/idle_s": 4.0}


def test_a_role_that_only_waited_is_named():
    metrics = break_down([call("reward", 0, 10, (0, 10, "wait_data"))], (0,), 0.0, 10.0).metrics()
    assert metrics["timing/reward_s"] == 0.0


def test_a_role_that_had_no_call_in_the_step_is_not_named():
    made = [call("actor", -1, 0), call("rollout", 0, 1), call("reward", 1, 2), call("actor", 10, 12)]
    assert [state for state in break_down(made, (0,), 0.0, 10.0).devices[0] if state not in STATES] == ["rollout", "reward"]


def test_the_pieces_of_a_call():
    placed = call("actor", 1, 9, (2, 3, "wait_data"), (3, 5, "sync"))
    assert list(pieces(placed.call)) == [
        (1, 2, None), (2, 3, "wait_data"), (3, 3, None), (3, 5, "sync"), (5, 9, None)]


def test_the_mean_of_nothing():
    assert mean([]) == {}
    assert mean([{"actor": 1.0}, {"rollout": 3.0, "idle": 1.0}]) == {
        "actor": 0.5, "rollout": 1.5, **dict.fromkeys(STATES, 0.0), "idle": 0.5}


LENGTHS = st.floats(0, 3, allow_subnormal=False)


@st.composite
def calls(draw):
    began = draw(st.floats(-5, 12))
    spans, at = [], began
    for gap, length, kind in draw(st.lists(st.tuples(LENGTHS, LENGTHS, st.sampled_from(WAITS)), max_size=6)):
        spans.append((at + gap, at + gap + length, kind))
        at += gap + length
    devices = draw(st.sets(st.integers(0, 2), min_size=1))
    return call(draw(st.sampled_from(["rollout", "reward", "actor"])), began, at + draw(LENGTHS), *spans,
                rank=draw(st.integers(0, 3)), devices=tuple(sorted(devices)))


@settings(max_examples=100, deadline=None)
@given(st.lists(calls(), max_size=8), st.floats(0.001, 10))
def test_the_states_of_each_device_are_the_step(made, seconds):
    found = break_down(made, range(3), 1.0, 1.0 + seconds)
    for times in found.devices.values():
        assert sum(times.values()) == pytest.approx(found.seconds, rel=1e-9)
        assert all(value >= 0 for value in times.values())
    metrics = found.metrics()
    assert sum(value for name, value in metrics.items() if name != "timing/step_s") == pytest.approx(found.seconds, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(st.lists(calls(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_calls_does_not_matter(made, random):
    shuffled = random.sample(made, len(made))
    for one, other in zip(*(break_down(some, range(3), 0.0, 10.0).devices.values() for some in (made, shuffled))):
        assert one == pytest.approx(other)


@settings(max_examples=100, deadline=None)
@given(st.lists(calls(), max_size=6))
def test_a_device_is_never_idle_or_waiting_where_a_call_on_it_computes(made):
    """What is known of computing is not swallowed: sampled between all times at which anything changes."""
    found = break_down(made, range(3), 0.0, 10.0)
    for device, times in found.devices.items():
        mine = [placed.call for placed in made if device in placed.devices]
        edges = sorted({0.0, 10.0, *(min(max(edge, 0.0), 10.0) for one in mine for piece in pieces(one) for edge in piece[:2])})
        computed = sum(end - start for start, end in pairwise(edges)
                       if any(kind is None and a <= start and end <= b for one in mine for a, b, kind in pieces(one)))
        assert sum(value for state, value in times.items() if state not in STATES) == pytest.approx(computed)


class TestOverlappingSteps:
    """Step 1 generates in 0-4 and trains in 4-8; step 2 generates in 1-7, and trains in 8-11."""

    ONE = (call("rollout", 0, 4), call("actor", 4, 8, devices=(1,)))
    TWO = (call("rollout", 1, 7), call("actor", 8, 11, devices=(1,)))

    def first(self):
        under_way = [call("rollout", 1, 7), call("actor", 8, 8.5, (8, 8.5, "wait_data"), devices=(1,))]
        return step_time(self.ONE, under_way, (0, 1), 0.0, 0.0, 8.5)

    def second(self):
        return step_time(self.TWO, (), (0, 1), 1.0, 8.0, 11.0)

    def test_a_step_has_the_time_since_the_end_of_the_one_before(self):
        first, second = self.first(), self.second()
        assert (first.began, first.ended, first.opened) == (0.0, 8.0, 0.0)
        assert (second.began, second.ended, second.opened) == (8.0, 11.0, 1.0)

    def test_what_later_steps_do_meanwhile_is_no_idle_time(self):
        assert self.first().devices[0] | {"idle": None} == {**dict.fromkeys((*WAITS, "idle"), 0.0), "rollout": 7.0, "idle": None}
        assert self.first().devices[0]["idle"] == 1.0
        assert self.first().devices[1]["actor"] == 4.0
        assert self.second().devices[1] == {**dict.fromkeys(STATES, 0.0), "actor": 3.0}
        assert self.second().devices[0]["idle"] == 3.0

    def test_every_call_is_of_the_step_in_whose_time_it_ended(self):
        assert [placed.call.timing.total for placed in self.first().calls] == [6, 4, 4]
        assert [placed.call.timing.began for placed in self.second().calls] == [8]

    def test_a_call_that_answered_after_it_was_asked_about_counts_once(self):
        asked, answered = call("rollout", 1, 6.9), call("rollout", 1, 7)
        found = step_time(self.ONE, [asked, answered], (0, 1), 0.0, 0.0, 8.5)
        assert [placed.call.timing.total for placed in found.calls if placed.call.role == "rollout"] == [6, 4]

    def test_a_step_that_is_alone_ends_when_that_is_seen(self):
        found = step_time(self.ONE, (), (0, 1), 2.0, 1.0, 9.0)
        assert (found.began, found.ended) == (2.0, 9.0)
        assert len(found.calls) == 2

    def test_an_end_that_another_clock_shows_too_early_is_taken_to_be_now(self):
        found = step_time([call("actor", 0, 4)], [call("rollout", 1, 7)], (0,), 0.0, 5.0, 8.0)
        assert (found.began, found.ended) == (5.0, 8.0)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 5), st.lists(calls(), min_size=1, max_size=4)), min_size=1, max_size=5))
def test_the_times_of_overlapping_steps_are_the_run(made):
    """Steps end in order, each when its last call has ended; the calls of later ones are known so far. What is told of them,
    together, is what would be told of the whole at once, and each call is drawn once."""
    seconds, now = [], 0.0
    for length, _ in made:
        now += length
        seconds.append(now)
    steps = [[_moved(one, index, end) for index, one in enumerate(own)] for (_, own), end in zip(made, seconds, strict=True)]
    found, before = [], 0.0
    for number, (own, end) in enumerate(zip(steps, seconds, strict=True)):
        others = [_so_far(one, end) for later in steps[number + 1 :] for one in later if one.call.timing.began < end]
        found.append(step_time(own, others, range(3), 0.0, before, end + 1e-9))
        before = found[-1].ended
    every = [one for own in steps for one in own]
    whole = break_down(every, range(3), 0.0, before)
    for device in range(3):
        assert sum(sum(one.devices[device].values()) for one in found) == pytest.approx(before, rel=1e-6)
        for state in {*STATES, "rollout", "reward", "actor"}:
            parts = sum(one.devices[device].get(state, 0.0) for one in found)
            assert parts == pytest.approx(whole.devices[device].get(state, 0.0), abs=1e-6)
    drawn = [id(one.call.timing) for step in found for one in step.calls]
    assert len(drawn) == len(set(drawn)) == len(every)


def _moved(placed, rank, end):
    """Of its own rank, ending with its step, or a little before, but not before the run began."""
    timing = placed.call.timing
    total = min(timing.total, end)
    spans = tuple((start, min(stop, total), kind) for start, stop, kind in timing.spans if start < total)
    moved = CallTiming(end - total, total, spans)
    return Placed(Call(placed.call.role, int(end * 1e6) * 10 + rank, "work", moved), placed.devices)


def _so_far(placed, now):
    timing = placed.call.timing
    if timing.began + timing.total <= now:
        return placed
    total = now - timing.began
    spans = tuple((start, min(stop, total), kind) for start, stop, kind in timing.spans if start < total)
    call = placed.call
    return Placed(Call(call.role, call.rank, call.method, CallTiming(timing.began, total + 1e-6, spans)), placed.devices)

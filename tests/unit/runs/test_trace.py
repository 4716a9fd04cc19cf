"""`trace.json`: whole at every moment, no larger than allowed, and going on after a resume."""

import json
import math
import os
from dataclasses import replace
from itertools import pairwise

import pytest

from rlinf_cli.errors import UsageError
from rlinf_cli.flow.timeline import Call, CallTiming
from rlinf_cli.runs import trace
from rlinf_cli.runs.breakdown import Placed, break_down
from rlinf_cli.runs.trace import TraceWriter, copy_trace, read_trace

DEVICES = {0: "node-0 cpu:0", 1: "node-0 cpu:1"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "trace.json"


@pytest.fixture
def opened(path):
    """`opened()`: a writer, and what it warned of."""

    def open_(keep=100, after=0, devices=None):
        warnings = []
        writer = TraceWriter(path, keep, after, DEVICES if devices is None else devices, warnings.append)
        writer.warnings = warnings
        return writer

    return open_


@pytest.fixture
def clock(monkeypatch):
    """What the writer takes for the time; never due by itself, unless told."""
    now = [1000.0]
    monkeypatch.setattr(trace.time, "monotonic", lambda: now[0])
    return now


def call(role, rank, method, began, seconds, *spans, beside=False, devices=None):
    timing = CallTiming(began, seconds, tuple(spans))
    return Placed(Call(role, rank, method, timing, beside), (rank,) if devices is None else devices)


def step(number):
    """A step of a second that began at its number."""
    calls = [call("rollout", 0, "generate", number, 0.5, (0.1, 0.2, "wait_data")), call("rollout", 1, "generate", number, 0.25),
             call("actor", 0, "train", number + 0.5, 0.375),
             call("rollout", 1, "update_weights", number + 0.5, 0.125, beside=True)]
    return break_down(calls, (0, 1), float(number), number + 1.0)


def events(path, **wanted):
    found = json.loads(path.read_text())["traceEvents"]
    return [event for event in found if all(event.get(key) == value for key, value in wanted.items())]


def names(path, kind):
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in events(path, ph="M", name=kind)}


def test_a_step_in_chromes_format(opened, path):
    with opened() as writer:
        writer.step(3, {"reward/mean": 0.5, "throughput/tokens_per_s": math.nan, "actor/loss": 1.0}, step(3))
    processes = names(path, "process_name")
    assert processes == {(1, 0): "run", (2, 0): "node-0 cpu:0", (3, 0): "node-0 cpu:1"}
    threads = {name: key for key, name in names(path, "thread_name").items()}
    assert set(threads) == {"steps", "device", "rollout[0]", "rollout[1]", "rollout[1] beside", "actor[0]"}
    (generate,) = events(path, name="generate", pid=2)
    assert (generate["pid"], generate["tid"]) == threads["rollout[0]"]
    assert (generate["ph"], generate["ts"], generate["dur"]) == ("X", 0.0, 500_000.0)
    (wait,) = events(path, name="wait_data")
    assert (wait["tid"], wait["ts"], wait["dur"]) == (generate["tid"], 100_000.0, 100_000.0)
    (update,) = events(path, name="update_weights")
    assert (update["pid"], update["tid"]) == threads["rollout[1] beside"]
    (marker,) = events(path, ph="i")
    assert (marker["name"], marker["s"], marker["ts"]) == ("step 3", "g", 0.0)
    (counter,) = events(path, ph="C")
    assert (counter["name"], counter["ts"], counter["args"]) == ("reward/mean", 1_000_000.0, {"value": 0.5})
    (slice_,) = events(path, name="step 3", ph="X", pid=1)
    assert slice_["dur"] == 1_000_000.0


def test_every_event_has_what_viewers_need(opened, path):
    with opened() as writer:
        for number in range(1, 4):
            writer.step(number, {"reward/mean": 0.5}, step(number))
    threads = names(path, "thread_name")
    assert len({tid for _, tid in threads}) == len(threads)
    for event in events(path):
        assert event["ph"] in {"M", "X", "i", "C"}
        assert event["pid"] > 0
        if event["ph"] in "Xi":
            assert (event["pid"], event["tid"]) in threads
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0


def test_slices_of_a_thread_lie_within_or_beside_each_other(opened, path):
    """Viewers cannot draw others."""
    with opened() as writer:
        for number in range(1, 4):
            writer.step(number, {}, step(number))
    for thread in names(path, "thread_name"):
        slices = sorted((one["ts"], -one["dur"]) for one in events(path, ph="X", pid=thread[0], tid=thread[1]))
        open_until = []
        for start, length in slices:
            while open_until and open_until[-1] <= start + 0.2:
                open_until.pop()
            assert not open_until or start - length <= open_until[-1] + 0.2
            open_until.append(start - length)


def test_what_a_reader_gets(opened, path):
    with opened() as writer:
        for number in (1, 2):
            writer.step(number, {}, step(number))
    first, second = read_trace(path)
    assert (first.number, second.number, first.seconds) == (1, 2, 1.0)
    assert list(first.devices) == list(DEVICES.values())
    assert {state: seconds for state, seconds in first.devices["node-0 cpu:0"].items() if seconds} == {
        "rollout": 0.4, "actor": 0.375, "wait_data": 0.1, "idle": 0.125}
    for times in first.devices.values():
        assert sum(times.values()) == pytest.approx(first.seconds)


def test_a_rank_on_two_devices_is_seen_on_both(opened, path):
    with opened() as writer:
        writer.step(1, {}, break_down([call("actor", 0, "train", 1.0, 1.0, devices=(0, 1))], (0, 1), 1.0, 2.0))
    assert {event["pid"] for event in events(path, name="train")} == {2, 3}


def test_evaluations_and_checkpoints_stand_between_the_steps(opened, path, clock):
    with opened() as writer:
        writer.step(0, {}, None, (1000.0, 1001.0))
        clock[0] = 1003.0
        writer.step(1, {}, step(1001), (1002.0, 1002.5))
        writer.checkpoint(1002.5)
    between = {(event["name"], event["ts"], event["dur"]) for event in events(path, ph="X", pid=1)}
    assert between == {("evaluation", 0.0, 1e6), ("step 1", 1e6, 1e6), ("evaluation", 2e6, 0.5e6), ("checkpoint", 2.5e6, 0.5e6)}
    assert [one.number for one in read_trace(path)] == [1]


def test_nothing_of_a_step_that_took_no_place(opened, path):
    with opened() as writer:
        writer.step(0, {}, None)
    assert not path.exists()


class TestWhenItIsWritten:
    def test_with_the_first_step_then_every_few_seconds(self, opened, path, clock):
        writer = opened()
        writer.step(1, {}, step(1))
        assert [one.number for one in read_trace(path)] == [1]
        writer.step(2, {}, step(2))
        assert [one.number for one in read_trace(path)] == [1]
        clock[0] += trace.EVERY_S
        writer.step(3, {}, step(3))
        assert [one.number for one in read_trace(path)] == [1, 2, 3]

    def test_at_a_checkpoint_and_at_the_end(self, opened, path, clock):
        with opened() as writer:
            writer.step(1, {}, step(1))
            writer.step(2, {}, step(2))
            writer.checkpoint(1000.0)
            assert [one.number for one in read_trace(path)] == [1, 2]
            writer.step(3, {}, step(3))
        assert [one.number for one in read_trace(path)] == [1, 2, 3]

    def test_less_often_where_that_takes_long(self, opened, path, clock, monkeypatch):
        writer = opened()
        monkeypatch.setattr(trace, "write_atomically", lambda *arguments: clock.__setitem__(0, clock[0] + 2.0))
        writer.step(1, {}, step(1))
        assert writer._due == pytest.approx(clock[0] + 200.0)

    def test_not_again_where_nothing_is_new(self, opened, path, clock):
        with opened() as writer:
            writer.step(1, {}, step(1))
            path.unlink()
        assert not path.exists()

    def test_a_reader_never_finds_a_part(self, opened, path, monkeypatch):
        writer = opened()
        writer.step(1, {}, step(1))
        monkeypatch.setattr(os, "replace", lambda *names: read_trace(path) and (_ for _ in ()).throw(OSError(28, "full")))
        writer.checkpoint(0.0)
        assert [one.number for one in read_trace(path)] == [1]

    def test_a_disk_that_refuses_stops_nothing_but_the_trace(self, opened, path, small_disk):
        writer = TraceWriter(small_disk / "trace.json", 100, 0, DEVICES, (warnings := []).append)
        (small_disk / "full").write_bytes(b"x" * (1 << 20))
        with writer:
            writer.step(1, {}, step(1))
            writer.step(2, {}, step(2))
            writer.checkpoint(0.0)
        assert warnings == [f"cannot write {small_disk / 'trace.json'}: no space left on device; the run goes on without it"]


class TestHowMuchIsKept:
    def test_the_latest_steps(self, opened, path):
        with opened(keep=3) as writer:
            for number in range(1, 11):
                writer.step(number, {}, step(number))
        assert [one.number for one in read_trace(path)] == [8, 9, 10]

    def test_none(self, opened, path):
        with opened(keep=0) as writer:
            writer.step(1, {}, step(1), (1.0, 2.0))
            writer.checkpoint(1.0)
        assert not path.exists()

    def test_as_many_as_fit(self, opened, path, monkeypatch):
        monkeypatch.setattr(trace, "MOST_BYTES", 10_000)
        with opened() as writer:
            for number in range(1, 51):
                writer.step(number, {}, step(number))
                writer.checkpoint(number)
        kept = [one.number for one in read_trace(path)]
        assert kept[-1] == 50
        assert 2 <= len(kept) < 10
        assert path.stat().st_size < 12_000

    def test_of_a_huge_step_the_longest_slices(self, opened, path, monkeypatch):
        monkeypatch.setattr(trace, "MOST_SLICES", 10)
        calls = [call("rollout", 0, f"call{number}", 1.0, number / 1000) for number in range(100)]
        with opened() as writer:
            writer.step(1, {}, break_down(calls, (0,), 1.0, 2.0))
        assert {event["name"] for event in events(path, ph="X", pid=2)} == {"step 1", *(f"call{n}" for n in range(90, 100))}


class TestResume:
    def test_goes_on_behind_what_was_there(self, opened, path):
        with opened() as writer:
            for number in range(1, 6):
                writer.step(number, {}, step(number))
        before = {event["name"]: event["ts"] for event in events(path, ph="i")}
        with opened(after=3) as writer:
            writer.step(4, {"reward/mean": 1.0}, step(14))
        assert [one.number for one in read_trace(path)] == [1, 2, 3, 4]
        after = {event["name"]: event["ts"] for event in events(path, ph="i")}
        assert after == {name: before[name] for name in ("step 1", "step 2", "step 3")} | {"step 4": pytest.approx(13e6)}
        assert len(events(path, ph="M", name="thread_name")) == 6 + 1  # and the device thread of the second
        assert len({event["tid"] for event in events(path, name="generate", pid=2)}) == 1

    def test_other_devices_than_before(self, opened, path):
        with opened() as writer:
            writer.step(1, {}, step(1))
        with opened(after=1, devices={0: "node-0 cuda:0"}) as writer:
            writer.step(2, {}, break_down([call("actor", 0, "train", 2.0, 0.5)], (0,), 2.0, 3.0))
        assert list(read_trace(path)[1].devices) == ["node-0 cuda:0"]

    def test_the_last_steps_only(self, opened, path):
        with opened() as writer:
            for number in range(1, 6):
                writer.step(number, {}, step(number))
        with opened(keep=2, after=5) as writer:
            writer.step(6, {}, step(6))
        assert [one.number for one in read_trace(path)] == [5, 6]

    @pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"traceEvents": [{"ph": "X"}], "otherData": {"origin": 1.0}}',
                                         '{"traceEvents": [], "otherData": {"origin": null}}'])
    def test_of_something_else_begins_anew(self, opened, path, content):
        path.write_text(content)
        with opened(after=1) as writer:
            writer.step(2, {}, step(2))
        assert [one.number for one in read_trace(path)] == [2]

    def test_without_a_step_leaves_it_alone(self, opened, path):
        with opened() as writer:
            writer.step(1, {}, step(1))
        before = path.read_bytes()
        with opened(after=1):
            pass
        assert path.read_bytes() == before


@pytest.mark.parametrize(("content", "words"), [
    (None, r"there is no .*trace.json: it comes with the first step of a run, unless log.trace=0"),
    ("{", "cannot read .*trace.json: "),
    ("[1]", "is not the trace of a run"),
    ('{"traceEvents": 3}', "is not the trace of a run"),
    ('{"traceEvents": [{"ph": "i", "cat": "marker", "args": {}}]}', "is not the trace of a run"),
])
def test_what_cannot_be_read(path, content, words):
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=words):
        read_trace(path)


def test_a_copy(opened, path, tmp_path):
    with opened() as writer:
        writer.step(1, {}, step(1))
    copy_trace(path, tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()
    with pytest.raises(UsageError, match=r"cannot write .*no such file or directory"):
        copy_trace(path, tmp_path / "nowhere/copy.json")


class TestOverlappingSteps:
    """Steps 1, 2 and 3 end at 10, 12 and 14; each was begun two seconds after the one before."""

    def spent(self, number, calls):
        ended = 8 + 2.0 * number
        found = break_down(calls, (0, 1), 0.0 if number == 1 else ended - 2, ended)
        return replace(found, calls=calls, opened=2.0 * (number - 1))

    def written(self, opened):
        with opened() as writer:
            # generation of step 2 begins before that of step 1 ends, and ends in the time of step 1, before it
            writer.step(1, {}, self.spent(1, [call("rollout", 0, "generate", 0, 9, beside=True),
                                              call("rollout", 0, "generate", 2, 5, beside=True),
                                              call("rollout", 0, "update_weights", 9.5, 0.5, beside=True)]))
            writer.step(2, {}, self.spent(2, [call("actor", 1, "train", 10, 2)]))
            writer.step(3, {}, self.spent(3, [call("rollout", 0, "generate", 8, 4, beside=True)]))

    def test_slices_of_a_thread_do_not_overlap(self, opened, path):
        self.written(opened)
        threads = {}
        for event in events(path, ph="X"):
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        for slices in threads.values():
            assert all(before[1] <= after[0] for before, after in pairwise(sorted(slices)))
        found = names(path, "thread_name")
        assert sorted(name for (pid, _), name in found.items() if pid == 2) == [
            "device", "rollout[0] beside", "rollout[0] beside 2"]

    def test_a_step_that_began_before_the_end_of_the_one_before_is_shown_whole_too(self, opened, path):
        self.written(opened)
        lanes = {tid: name for (_, tid), name in names(path, "thread_name").items()}
        shown = {(event["name"], lanes[event["tid"]]): (event["ts"] / 1e6, event["dur"] / 1e6)
                 for event in events(path, ph="X", pid=1)}
        assert shown == {("step 1", "steps"): (0, 10), ("step 2", "steps"): (10, 2), ("step 3", "steps"): (12, 2),
                         ("step 2", "under way"): (2, 10), ("step 3", "under way 2"): (4, 10)}

    def test_what_is_read_back_are_the_times_that_add_up(self, opened, path):
        self.written(opened)
        assert [(step.number, step.seconds) for step in read_trace(path)] == [(1, 10.0), (2, 2.0), (3, 2.0)]
        for step in read_trace(path):
            assert all(sum(states.values()) == pytest.approx(step.seconds) for states in step.devices.values())

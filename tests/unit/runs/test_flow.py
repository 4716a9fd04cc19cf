"""Steps that overlap: what starts when, in which order they are reported, and what an end in the middle leaves behind. The
processes are played by a fixture."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.runs import flow as module
from rlinf_cli.runs.flow import Interlude, LaunchedFlow, RunFlow
from rlinf_cli.workers.result import TrainResult

STEPS = 8
PROMPTS = 3


class Handle:
    """A call that ends when it is waited for, if not told to fail; `result` is made then."""

    role, ranks, group = "actor", (0,), SimpleNamespace(present=(0,))

    def __init__(self, name, world, result=lambda: None, error=None):
        self.name, self.world, self._result, self.error = name, world, result, error
        self.method, self.wiring = name.partition(" ")[0], SimpleNamespace(outs=("made",) if name.startswith("make") else ())
        self.ended = False

    def end(self):
        if self.error is not None:
            raise self.error
        if not self.ended:
            self.ended = True
            self.world.log.append(f"{self.name} ends")

    def done(self):
        return self.ended or self.error is not None

    def succeeded(self):
        return self.ended

    def wait(self, timeout=None):
        if not self.done():
            raise RunError("not ended in time")
        self.end()
        return [self._result()]

    def calls(self):
        return []

    answered = peak_memory = switches = calls


class World:
    """Plays groups, `gather` and the data; `log` has what happened. `stop_after`: gathers until Ctrl-C."""

    def __init__(self, staleness, steps=STEPS):
        self.config = SimpleNamespace(steps=steps, cluster=SimpleNamespace(call_timeout_s=5.0), log=SimpleNamespace(samples=9),
                                      rollout=SimpleNamespace(staleness=staleness, prompts=PROMPTS, group_size=2,
                                                              overprovision=0.0))
        self.stream = SimpleNamespace(batch=self.batch, epoch=lambda batches: batches / 10)
        self.log, self.reports, self.trained, self.gathers = [], [], [], 0
        self.stop_after, self.ahead, self.flow = None, 0, None

    def batch(self, number):
        row = SimpleNamespace(text="", messages=None, answer=None, columns={}, target=None)
        return [SimpleNamespace(id=f"0-{number * PROMPTS + place}", row=row) for place in range(PROMPTS)]

    def gather(self, handles, timeout=None, beside=()):
        self.gathers += 1
        failed = next((handle for handle in beside if handle.error is not None), None)
        if failed is not None:
            raise failed.error
        if self.stop_after == self.gathers:
            for handle in list(beside)[: self.ahead]:
                handle.end()
            raise KeyboardInterrupt
        for handle in handles:
            handle.end()

    def call(self, name, result=lambda: None, error=None):
        self.log.append(name)
        handle = Handle(name, self, result, error)
        self.flow._called(handle)
        return handle

    def run(self, number=0, batches=0, rounds=lambda index: 1, **more):
        self.flow = RunFlow(self.config, {}, self.stream, number, batches, self.report, **more)
        self.call("publish 0")
        for step in self.flow.steps():
            ids = []
            for _ in range(rounds(step.index)):
                step.feed(SimpleNamespace(put_many=lambda prompts, ids=ids: ids.extend(one.id for one in prompts),
                                          close=lambda: None))
            self.call(f"train {step.index + 1}", lambda ids=ids: TrainResult({"reward/mean": 0.5}, ids, 10, len(ids)))
            self.call(f"publish {step.index + 1}")

    def report(self, report):
        self.log.append(f"report {report.number}")
        self.reports.append(report)

    @property
    def ids(self):
        return [report.samples for report in self.reports]


@pytest.fixture
def world(monkeypatch):
    made = []

    def make(staleness, **more):
        made.append(World(staleness, **more))
        monkeypatch.setattr(module, "gather", made[-1].gather)
        monkeypatch.setattr(module, "under_way", lambda groups: [])
        return made[-1]

    return make


def open_at_most(log):
    """Steps whose calls have been issued and that have not ended, at most."""
    count = most = 0
    for line in log:
        count += line.startswith("train") and "ends" not in line
        count -= line.startswith("publish") and line.endswith("ends") and line != "publish 0 ends"
        most = max(most, count)
    return most


@pytest.mark.parametrize("staleness", [0, 1, 2, 5, 20])
def test_so_many_steps_run_ahead_and_are_reported_in_order(world, staleness):
    made = world(staleness)
    made.run()
    assert [report.number for report in made.reports] == list(range(1, STEPS + 1))
    assert open_at_most(made.log) == min(staleness + 1, STEPS)
    assert made.ids == [[f"0-{row}" for row in range(step * PROMPTS, (step + 1) * PROMPTS)] for step in range(STEPS)]
    for step in range(1, STEPS - staleness):
        # nothing of step k + S + 1 is issued before the version that step k has trained is published
        assert made.log.index(f"publish {step} ends") < made.log.index(f"train {step + staleness + 1}")


def test_without_staleness_a_step_ends_before_the_next_begins_and_is_reported_while_that_is_under_way(world):
    made = world(0, steps=2)
    made.run()
    assert made.log == [
        "publish 0", "publish 0 ends", "train 1", "publish 1", "train 1 ends", "publish 1 ends",
        "train 2", "publish 2", "report 1", "train 2 ends", "publish 2 ends", "report 2"]


def test_what_is_urgent_is_reported_before_the_next_step_begins(world):
    made = world(0, steps=2)
    made.run(is_urgent=lambda number: number == 1)
    assert made.log.index("report 1") < made.log.index("train 2")


def test_a_report_knows_the_prompts_of_its_own_step_not_those_that_later_ones_have_taken(world):
    made = world(3)
    made.run(rounds=lambda index: 1 + index % 2)
    assert [report.batches for report in made.reports] == [1, 3, 4, 6, 7, 9, 10, 12]
    assert [report.metrics["progress/epoch"] for report in made.reports[:3]] == [0.1, 0.3, 0.4]


@pytest.mark.parametrize("ahead", [0, 2, 4, 9])
@pytest.mark.parametrize("staleness", [0, 2])
def test_after_an_interrupt_anywhere_the_same_prompts_come_again(world, staleness, ahead):
    """Scenario R1. `ahead`: calls of steps behind the oldest that end before the interrupt."""
    whole = world(staleness)
    whole.run(rounds=lambda index: 1 + index % 3)
    for stop in range(1, whole.gathers + 1):
        made = world(staleness)
        made.stop_after, made.ahead = stop, ahead
        with pytest.raises(KeyboardInterrupt):
            made.run(rounds=lambda index: 1 + index % 3)
        made.flow.cancel("interrupted", 0.0)
        numbers = [report.number for report in made.reports]
        assert numbers == list(range(1, len(numbers) + 1))
        last = made.reports[-1] if made.reports else SimpleNamespace(number=0, batches=0)
        again = world(staleness)
        again.run(last.number, last.batches, rounds=lambda index: 1 + index % 3)
        assert made.ids + again.ids == whole.ids


@pytest.mark.parametrize("asked", [1, 4])
@pytest.mark.parametrize("staleness", [0, 2])
def test_it_is_left_when_the_steps_under_way_have_ended_and_goes_on_from_there(world, staleness, asked):
    whole = world(staleness)
    whole.run()
    made = world(staleness)
    report = made.report
    made.report = lambda one: (report(one), made.flow.leave() if one.number == asked else None)
    with pytest.raises(Interlude, match="before step"):
        made.run()
    numbers = [one.number for one in made.reports]
    assert numbers == list(range(1, asked + staleness + 2))  # those that had been started by then
    assert not made.flow._open
    again = world(staleness)
    again.run(numbers[-1], made.reports[-1].batches)
    assert made.ids + again.ids == whole.ids


def test_after_the_last_step_there_is_nothing_to_leave(world):
    made = world(0)
    report = made.report
    made.report = lambda one: (report(one), made.flow.leave())
    with pytest.raises(Interlude):
        made.run()
    made = world(0, steps=1)
    report = made.report
    made.report = lambda one: (report(one), made.flow.leave())
    made.run()


def test_what_was_trained_before_the_interrupt_is_reported_and_what_comes_after_is_not(world):
    made = world(2)
    made.stop_after, made.ahead = 2, 5  # of three open steps: step 1, step 2 and the training of step 3
    with pytest.raises(KeyboardInterrupt):
        made.run()
    made.flow.cancel("interrupted", 0.0)
    assert [report.number for report in made.reports] == [1, 2, 3]
    assert made.reports[2].batches == 3


def test_a_failure_of_any_open_step_is_raised(world):
    made = world(2)
    wait = made.call
    made.call = lambda name, *more: wait(name, *more, **({"error": RunError("reward[0] failed")} if name == "train 3" else {}))
    with pytest.raises(RunError, match=r"reward\[0\] failed"):
        made.run()
    assert made.reports == []


class Evaluation:
    def __init__(self, world, every):
        self.world, self.every = world, every

    def is_due(self, number):
        return number % self.every == 0

    def results(self, groups, version):
        self.world.log.append(f"evaluated {version}")
        return []


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_an_evaluation_is_alone(world, staleness, monkeypatch):
    """Scenario S3: nothing of the next step is admitted before it, and no step is lost."""
    made = world(staleness)

    def evaluate(flow, evaluation, number):
        assert not flow._open
        return []

    monkeypatch.setattr(RunFlow, "evaluate", evaluate)
    made.run(evaluation=Evaluation(made, 3))
    assert [report.number for report in made.reports if report.number] == list(range(1, STEPS + 1))
    for number in (3, 6):
        assert made.log.index(f"publish {number} ends") < made.log.index(f"evaluated {number}")
        assert made.log.index(f"evaluated {number}") < made.log.index(f"train {number + 1}")
    assert open_at_most(made.log) == min(staleness + 1, 3)


def issued(made, staleness, **more):
    order = made(staleness)
    order.run(on_issued=lambda number: order.call(f"save {number}"), **more)
    return order


def test_what_is_ordered_behind_a_step_belongs_to_it(world):
    made = issued(world, 2)
    saved = [line for line in made.log if line.startswith("save") and "ends" not in line]
    assert saved == [f"save {number}" for number in range(1, STEPS)]
    for number in range(1, STEPS):
        at = made.log.index(f"save {number}")
        assert made.log[at - 1] == f"publish {number}"
        assert made.log.index(f"save {number} ends") < made.log.index(f"report {number}")


def test_nothing_is_ordered_where_no_later_call_comes_before_the_end(world, monkeypatch):
    assert not any(line.startswith("save") for line in issued(world, 0).log)
    monkeypatch.setattr(RunFlow, "evaluate", lambda flow, evaluation, number: [])
    made = world(2)
    made.run(on_issued=lambda number: made.call(f"save {number}"), evaluation=Evaluation(made, 2))
    assert [line for line in made.log if line.startswith("save") and "ends" not in line] == [
        "save 1", "save 3", "save 5", "save 7"]


def test_to_wait_for_one_call_is_not_to_wait_for_the_others(world):
    made = world(1)
    flow = made.flow = RunFlow(made.config, {}, made.stream, 0, 0, made.report)
    steps = flow.steps()
    next(steps)
    made.call("train 1", TrainResult)
    next(steps)
    collect = made.call("collect", lambda: True)
    assert flow.wait(collect) == [True]
    assert made.log[-1] == "collect ends"
    broken = made.call("score", error=RunError("reward[0] failed"))
    with pytest.raises(RunError, match=r"reward\[0\]"):
        flow.wait(made.call("collect again"))
    assert broken.done()


def test_calls_of_other_threads_are_none_of_the_steps(world):
    made = world(0)
    flow = made.flow = RunFlow(made.config, {}, made.stream, 0, 0, made.report)
    step = next(flow.steps())
    thread = threading.Thread(target=lambda: made.call("send_weights"))
    thread.start()
    thread.join()
    made.call("train")
    assert [handle.name for handle in step.handles] == ["train"]


@pytest.mark.parametrize(("life", "name"), [(0, "prompts-train-000000-0"), (2, "prompts-train-000000.2-0")])
def test_each_life_has_channels_of_its_own(world, life, name):
    made = world(0)
    made.flow = RunFlow(made.config, {}, made.stream, 0, 0, made.report, life=life)
    step = next(made.flow.steps())
    assert [channel.name for channel in step.channels("prompts")] == [name]


def test_a_launched_flow_without_steps_cancels_nothing(world):
    made = world(0)
    flow = LaunchedFlow(made.config, {})
    flow.cancel("stopped", 0.0)
    assert list(flow.steps()) == []


class Stubborn(Handle):
    """Does not end by itself; `looks` counts how often somebody looks."""

    looks = 0

    def done(self):
        self.looks += 1
        return False


def test_a_cancelled_call_is_waited_for_but_not_one_whose_process_is_started_again(world):
    made = world(0)
    late, restarting = Stubborn("generate", made), Stubborn("generate", made)
    restarting.group = SimpleNamespace(present=())
    began = time.monotonic()
    module._await([restarting], 30)
    assert restarting.looks
    assert time.monotonic() - began < 10
    module._await([late], 0.1)
    assert late.looks > 1
    assert time.monotonic() - began < 10


def opened(world, *ended):
    """A flow with a step under way, whose samples are made and which two roles train; the calls that have ended are named."""
    world.flow = flow = RunFlow(world.config, {}, world.stream, 0, 0, world.report)
    flow._open.append(SimpleNamespace(index=0, handles=[], cancel=lambda reason: world.log.append(reason)))
    flow._taken[0] = 1
    flow._issuing = flow._open[0].handles
    calls = [world.call(name, lambda: TrainResult({"reward/mean": 0.5}, [], 10, 2)) for name in ("make 1", "train 1", "train 1b")]
    for call in calls:
        call.ended = call.name in ended
    return flow


@pytest.mark.parametrize(("ended", "waits"), [(("make 1",), True), ((), False)])
def test_what_has_been_made_is_trained_by_all_before_a_stop(world, monkeypatch, ended, waits):
    """Else one role might train the step, and another not."""
    waited = []
    monkeypatch.setattr(module, "_await", lambda handles, patience: waited.extend((one.name, patience) for one in handles))
    opened(world(0), *ended).finish_made(7.0)
    assert waited == ([("make 1", 7.0), ("train 1", 7.0), ("train 1b", 7.0)] if waits else [])


def test_a_step_that_some_have_trained_and_others_not_is_not_reported(world):
    flow = opened(made := world(0), "make 1", "train 1")
    flow.catch_up()
    assert made.reports == []

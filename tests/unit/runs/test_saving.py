"""Checkpoints of a run whose steps overlap hold what their step trained, and say where it stood."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.flow.errors import WorkerError
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.saving import Saver
from rlinf_cli.runs.state import RunState
from rlinf_cli.runs.step import StepReport


class Actor:
    """Trains and saves in the order of its calls, whenever somebody waits for one."""

    def __init__(self, step=0):
        self.step, self.queue = step, []

    def train(self):
        return self._call(lambda: setattr(self, "step", self.step + 1))

    def save(self, directory):
        def write():
            from pathlib import Path

            (Path(directory) / "weights").write_text(str(self.step))

        return self._call(write)

    def trained_steps(self):
        return self._call(lambda: self.step)

    def _call(self, what):
        self.queue.append(what)
        return SimpleNamespace(wait=lambda timeout=None: [self.work(self.queue.index(what) + 1)])

    def work(self, calls=None):
        result = None
        for what in self.queue[:calls]:
            result = what()
        del self.queue[:calls]
        return result


class Record:
    def __init__(self):
        self.report, self.written = StepReport(0), []

    def state(self, step, fingerprint):
        return RunState(step, batches=self.report.batches, data=fingerprint)

    def checkpoint(self, began):
        self.written.append(self.report.number)

    def step(self, number):
        self.report = StepReport(number, {"reward/mean": 0.1}, batches=10 * number)


@pytest.fixture
def saver(tmp_path):
    config = SimpleNamespace(checkpoint=SimpleNamespace(every=2), cluster=SimpleNamespace(call_timeout_s=5.0))
    told, checkpoints = [], Checkpoints(tmp_path / "checkpoints", 9)
    made = Saver(config, checkpoints, Record(), SimpleNamespace(checkpoint=told.append), lambda: "digest")
    made.actor, made.record, made.checkpoints, made.told = Actor(), made._record, checkpoints, told
    made.start([made.actor], None)
    return made


def content(checkpoints, step):
    found = checkpoints.open(step, full=True)
    return (found.path / "weights").read_text(), found.state["batches"]


def test_the_weights_are_those_between_two_steps_though_the_actor_is_further(saver):
    for number in (1, 2, 3, 4):
        saver.actor.train()
        saver.order(number)
    saver.actor.work()
    for number in (1, 2):
        saver.record.step(number)
    saver.save(2)
    assert saver.actor.step == 4
    assert content(saver.checkpoints, 2) == ("2", 20)
    assert saver.checkpoints.steps() == [2]  # what was ordered of step 4 counts once that is reported
    saver.record.step(4)
    saver.save(4)
    assert content(saver.checkpoints, 4) == ("4", 40)
    assert [(one.step, one.directory.name) for one in saver.told] == [(2, "step_000002"), (4, "step_000004")]
    assert saver.record.written == [2, 4]


def test_where_none_was_ordered_the_actor_saves_now_and_never_twice(saver):
    saver.actor.step = 3
    saver.record.step(3)
    saver.save(3)
    saver.save(3)
    assert content(saver.checkpoints, 3) == ("3", 30)
    assert saver.saved == 3
    assert len(saver.told) == 1


def test_before_the_first_step_nothing_is_saved(saver):
    saver.save(0)
    assert not saver.checkpoints.steps()
    saver.start([saver.actor], 4)
    saver.save(4)  # from where the run went on
    assert not saver.checkpoints.steps()


@pytest.mark.parametrize(("step", "due"), [(1, False), (2, True), (3, False), (4, True)])
def test_only_where_it_is_due_is_one_ordered(saver, step, due):
    assert saver.is_due(step) == due
    saver.order(step)
    assert len(saver.actor.queue) == due


def test_what_a_dead_actor_was_to_write_is_void(saver):
    saver.order(2)
    saver.checkpoints.recover()
    saver.start([Actor(2)], None)
    saver.record.step(2)
    saver.save(2)
    assert content(saver.checkpoints, 2) == ("2", 20)


def test_trained_steps_are_asked_of_the_actor(saver):
    saver.actor.train()
    saver.actor.train()
    assert saver.trained() == 2


def test_a_full_disk_is_said_to_be_that(saver):
    saver.order(2)
    full = WorkerError("actor", 0, "node-0", "save", "OSError: [Errno 28] No space left on device", "")
    explained = saver.explain(full)
    assert isinstance(explained, RunError)
    assert "checkpoints/step_000002: no space left on device" in str(explained)
    other = WorkerError("actor", 0, "node-0", "train", "OSError: [Errno 28] No space left on device", "")
    assert saver.explain(other) is other
    strange = WorkerError("actor", 0, "node-0", "save", "ValueError: what", "")
    assert saver.explain(strange) is strange


class Critic(Actor):
    role = "critic"

    def save(self, directory):
        def write():
            (Path(directory) / "critic").mkdir()
            (Path(directory) / "critic/weights").write_text(str(self.step))

        return self._call(write)


@pytest.fixture
def both(saver):
    saver.actor.role, saver.critic = "actor", Critic()
    saver.start([saver.critic, saver.actor], None)
    return saver


def test_a_checkpoint_has_the_parts_of_all_that_is_trained(both):
    for number in (1, 2):
        both.actor.train()
        both.critic.train()
        both.order(number)
    for one in (both.actor, both.critic):
        one.train()  # both are further by the time that step 2 is reported
        one.work()
    both.record.step(2)
    both.save(2)
    assert content(both.checkpoints, 2) == ("2", 20)
    assert (both.checkpoints.open(2).path / "critic/weights").read_text() == "2"
    both.record.step(3)
    both.save(3)
    assert (both.checkpoints.open(3).path / "critic/weights").read_text() == "3"
    assert both.trained() == 3


def test_a_step_that_is_trained_in_part_is_no_state(both):
    both.actor.step, both.critic.step = 4, 5
    with pytest.raises(RunError, match="the step that was under way is trained in part: steps trained by critic 5, actor 4"):
        both.trained()

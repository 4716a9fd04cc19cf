"""How a run ends, and how it goes on after a death, apart from the processes that train."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.runs import launch
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.flow import Interlude
from rlinf_cli.runs.incidents import read_incidents
from rlinf_cli.runs.launch import Interrupted, Stopped, TrainRun
from rlinf_cli.runs.metrics import read_metrics
from rlinf_cli.runs.preflight import prepare
from rlinf_cli.runs.progress import PlainProgress
from rlinf_cli.runs.step import StepReport

INSTALLED = load_plugins(None)
STEPS = 6


def died(role="actor", rank=0):
    return WorkerDiedError(role, rank, "node-0", "train", "signal 9", 4711, "/logs/actor-0.log")


class Actor:
    """Counts what it has trained; saving writes it down. `lives`: how often it can be made again."""

    role, size, methods = "actor", 1, {"train", "save", "trained_steps", "send_weights"}

    def __init__(self, step=0):
        self.step, self.is_dead = step, False

    def save(self, directory):
        def write():
            if self.is_dead:
                raise died()
            (Path(directory) / "weights").write_text(str(self.step))

        return SimpleNamespace(wait=lambda timeout=None: [write()])

    def trained_steps(self):
        def ask():
            if self.is_dead:
                raise died()
            return self.step

        return SimpleNamespace(wait=lambda timeout=None: [ask()])


class Cluster:
    devices = ()
    on_incident = before_resume = None
    lost = ()

    def __init__(self, restarts):
        self.restarts, self.progress = restarts, 0

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def progressed(self):
        self.progress += 1

    def living(self):
        return [device for device in self.devices if device not in self.lost]

    def may_recover(self, death):
        self.restarts -= 1
        return death.role == "actor" and self.restarts >= 0


class Roles:
    """Stands for the launched roles; `starts` has where the actor was begun. `fails`: of its relaunches, in turn; `first`: of
    its launch."""

    fails, first = (), None

    def __init__(self, prepared, cluster):
        self.placement = SimpleNamespace(to_yaml=lambda: "")
        self.groups, self.starts = {}, []
        Roles.latest = self

    def launch(self, start):
        if self.first is not None:
            raise self.first
        self._begin(start)

    def relaunch(self, start):
        if Roles.fails:
            error, *Roles.fails = Roles.fails
            raise error
        self._begin(start)

    def move(self, placement, start):
        self.placement = placement
        if Roles.fails:
            error, *Roles.fails = Roles.fails
            raise error
        self._begin(start)

    def send_weights(self, group, rank):
        return ""

    def _begin(self, start):
        self.starts.append(0 if start is None else start.step)
        self.actor = Actor(self.starts[-1])
        self.trained = [self.actor]


class Flow:
    """A run whose steps train at once. Instead of a step of `failures` its error is raised, once."""

    def __init__(self, config, groups, stream, first, batches, on_step, evaluation, on_phase, on_issued, is_urgent, life, on_end):
        self.first, self.batches, self.on_step, self.life = first, batches, on_step, life
        self.cancelled, self.left = "", False

    def leave(self):
        self.left = True

    def cancel(self, reason, patience):
        self.cancelled = reason

    def catch_up(self):
        pass

    def finish_made(self, patience):
        pass


class Workflow:
    def __init__(self, failures, until=STEPS):
        self.failures, self.until, self.flows = dict(failures), until, []

    def run(self, flow):
        self.flows.append(flow)
        for number in range(flow.first + 1, self.until + 1):
            error = self.failures.pop(number, None)
            if error is not None:
                Roles.latest.actor.is_dead = isinstance(error, WorkerDiedError) and error.role == "actor"
                raise error
            Roles.latest.actor.step = number
            flow.on_step(StepReport(number, {"reward/mean": 0.5}, tokens=10, count=2, batches=number))
            if flow.left:
                raise Interlude("")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(failures, *settings)`: an attempt, with processes that are played."""
    monkeypatch.setattr(launch, "Roles", Roles)
    monkeypatch.setattr(launch, "RunFlow", Flow)
    monkeypatch.setattr(Roles, "fails", ())
    monkeypatch.setattr(Roles, "first", None)

    def make(failures=(), *settings, restarts=3, until=STEPS, resume=False):
        config = resolve([], [f"steps={STEPS}", "cluster.devices=cpu:1", *settings], {}, INSTALLED)
        prepared = replace(prepare(config, INSTALLED), workflow=Workflow(failures, until))
        path = tmp_path / "a"
        directory = RunDirectory(path) if path.exists() else RunDirectory.create(tmp_path, "a", False, "", {})
        directory.close()
        found = Checkpoints(directory.checkpoints).latest() if resume else None
        made = TrainRun(prepared, directory, tmp_path, found, PlainProgress(STEPS, StringIO()))
        made.cluster = Cluster(restarts)
        monkeypatch.setattr(made, "_start_cluster", lambda: made.cluster)
        made.directory, made.flows = directory, prepared.workflow.flows
        return made

    return make


def steps(run):
    return [row["step"] for row in read_metrics(run.directory.metrics)]


def saved(run):
    checkpoints = Checkpoints(run.directory.checkpoints)
    return {step: (checkpoints.open(step).path / "weights").read_text() for step in checkpoints.steps()}


def test_a_run_to_the_end_is_saved(run):
    made = run()
    made.execute()
    assert steps(made) == list(range(1, STEPS + 1))
    assert saved(made) == {STEPS: str(STEPS)}
    assert made.cluster.progress == STEPS
    assert not made.directory.incidents.exists()


def test_a_run_that_ends_before_its_steps_has_failed(run):
    made = run(until=1)
    said = r"^the workflow ended after step 1 of 6\. Stopped with a checkpoint of step 1; go on with: rlinf train --resume"
    with pytest.raises(Stopped, match=said) as caught:
        made.execute()
    assert caught.value.exit_code == 1


def test_an_interrupt_saves_what_was_trained(run):
    made = run({4: KeyboardInterrupt()})
    with pytest.raises(Interrupted, match="Interrupted with a checkpoint of step 3"):
        made.execute()
    assert saved(made) == {3: "3"}
    assert made.flows[0].cancelled == "the run was interrupted"


@pytest.mark.parametrize(("every", "died_in", "goes_on_from"), [(2, 6, 4), (2, 2, 0), (1, 4, 3), (0, 5, 0)])
def test_after_the_death_of_what_is_trained_the_run_goes_back_to_the_last_checkpoint(run, every, died_in, goes_on_from):
    made = run({died_in: died()}, f"checkpoint.every={every}", "checkpoint.keep_last=9")
    made.execute()
    assert Roles.latest.starts == [0, goes_on_from]
    assert [(flow.first, flow.batches, flow.life) for flow in made.flows] == [(0, 0, 0), (goes_on_from, goes_on_from, 1)]
    rows = read_metrics(made.directory.metrics)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert [row["progress/tokens"] for row in rows] == [10 * step for step in range(1, STEPS + 1)]
    assert [row.get("progress/restarts", 0) for row in rows] == [0] * goes_on_from + [1] * (STEPS - goes_on_from)
    assert all(weights == str(step) for step, weights in saved(made).items())
    (incident,) = read_incidents(made.directory.incidents)
    assert (incident["role"], incident["action"], incident["step"]) == ("actor", "recovered", died_in - 1)
    assert incident["what"].startswith("actor[0] on node-0 died (signal 9, process 4711) while in train")
    assert incident["detail"] == (f"the checkpoint of step {goes_on_from}" if goes_on_from else "nothing saved")


def test_a_damaged_checkpoint_is_passed_over(run, monkeypatch):
    made = run({6: died()}, "checkpoint.every=2", "checkpoint.keep_last=9")
    recover = made._recover

    def damaged(*arguments):
        (made.directory.checkpoints / "step_000004" / "weights").write_text("rubbish")
        return recover(*arguments)

    monkeypatch.setattr(made, "_recover", damaged)
    made.execute()
    assert Roles.latest.starts == [0, 2]
    assert saved(made) == {2: "2", 4: "4", 6: "6"}


def test_a_resumed_attempt_goes_back_to_what_it_was_resumed_from(run):
    with pytest.raises(Interrupted):
        run({4: KeyboardInterrupt()}).execute()
    made = run({6: died()}, resume=True)
    made.execute()
    assert Roles.latest.starts == [3, 3]
    assert steps(made) == list(range(1, STEPS + 1))


def test_several_deaths(run):
    made = run({2: died(), 4: died(), 6: died()}, "checkpoint.every=1")
    made.execute()
    assert Roles.latest.starts == [0, 1, 3, 5]
    assert [flow.life for flow in made.flows] == [0, 1, 2, 3]
    assert steps(made) == list(range(1, STEPS + 1))


def test_a_death_in_the_middle_of_a_recovery_is_recovered_from_as_well(run):
    Roles.fails = (died(),)
    made = run({4: died()}, "checkpoint.every=1")
    made.execute()
    assert Roles.latest.starts == [0, 3]
    assert [one["action"] for one in read_incidents(made.directory.incidents)] == ["recovered"]


@pytest.mark.parametrize(("error", "restarts"), [(died(), 0), (died("rollout", 1), 3), (RunError("numbers are not finite"), 3)])
def test_what_cannot_be_recovered_from_ends_the_run(run, error, restarts):
    made = run({4: error}, "checkpoint.every=2", restarts=restarts)
    with pytest.raises(Stopped) as caught:
        made.execute()
    assert str(caught.value).startswith(str(error))
    kept = 2 if isinstance(error, WorkerDiedError) and error.role == "actor" else 3
    assert f"with a checkpoint of step {kept}; go on with" in str(caught.value)
    assert len(made.flows) == 1
    assert steps(made) == [1, 2, 3]


def test_where_it_cannot_be_launched_again_the_run_ends_with_why(run):
    Roles.fails = (RunError("no device is left"),)
    made = run({4: died()}, "checkpoint.every=2")
    with pytest.raises(Stopped, match=r"^no device is left\. Stopped with a checkpoint of step 2"):
        made.execute()
    (incident,) = read_incidents(made.directory.incidents)
    assert (incident["role"], incident["action"]) == ("actor", "gave up")
    assert incident["what"].endswith("while in train; no device is left")


def test_a_death_while_the_roles_are_launched_is_recovered_from(run):
    Roles.first = died()
    made = run()
    made.execute()
    assert Roles.latest.starts == [0]
    assert steps(made) == list(range(1, STEPS + 1))
    assert [one["action"] for one in read_incidents(made.directory.incidents)] == ["recovered"]


@pytest.fixture
def resumed(run):
    """`resumed(first)`: a run that was stopped after step 3, and whose roles cannot be launched for this."""

    def make(first):
        with pytest.raises(Interrupted):
            run({4: KeyboardInterrupt()}).execute()
        Roles.first = first
        return run(resume=True, restarts=0)

    return make


def test_what_ends_a_launch_says_how_to_go_on(resumed):
    with pytest.raises(Stopped, match=r"^actor\[0\].*Stopped with a checkpoint of step 3; go on with: rlinf train --resume"):
        resumed(died()).execute()


def test_an_interrupt_of_a_launch_says_how_to_go_on(resumed):
    with pytest.raises(Interrupted, match=r"^Interrupted with a checkpoint of step 3; go on with: rlinf train --resume"):
        resumed(KeyboardInterrupt()).execute()


def test_an_interrupt_of_the_first_launch(run):
    Roles.first = KeyboardInterrupt()
    with pytest.raises(Interrupted, match=r"^Interrupted before the first step was saved; nothing to resume"):
        run().execute()


def test_a_setting_that_does_not_fit_is_told_as_it_is(resumed):
    with pytest.raises(UsageError, match=r"^the adapter has rank 4$"):
        resumed(UsageError("the adapter has rank 4")).execute()


def test_an_interrupt_of_a_recovery_says_how_to_go_on(run):
    Roles.fails = (KeyboardInterrupt(),)
    with pytest.raises(Interrupted, match=r"^Interrupted with a checkpoint of step 2; go on with"):
        run({4: died()}, "checkpoint.every=2").execute()


def test_a_failure_that_follows_from_the_death_is_that_death(run):
    made = run({4: WorkerError("rollout", 0, "node-0", "update_weights", "it died", "", died())}, "checkpoint.every=1")
    made.execute()
    assert len(made.flows) == 2


def test_a_step_that_is_reported_while_the_rest_is_cancelled_needs_no_actor(run, monkeypatch):
    """Trained, but its checkpoint cannot be written any more: the run goes back behind it."""
    made = run({4: died()}, "checkpoint.every=2")

    def cancel(flow, reason, patience):
        with contextlib.suppress(RunError):
            flow.on_step(StepReport(4, {"reward/mean": 0.5}, tokens=10, count=2, batches=4))
            pytest.fail("the dead actor has saved")
        raise died()

    monkeypatch.setattr(Flow, "cancel", cancel)
    made.execute()
    assert Roles.latest.starts == [0, 2]
    assert steps(made) == list(range(1, STEPS + 1))


# ---- another placement ----


class Adapter:
    """Wants to move after step 3, and does not know what it costs."""

    def __init__(self):
        self.target, self.seen, self.calls = None, [], []

    def compare(self, report):
        self.seen.append(report.number)

    def step(self, report, saved):
        if report.number == 3 and "moved" not in self.calls:
            self.target = SimpleNamespace(to_yaml=lambda: "elsewhere: 1")
        return self.target is not None

    def moved(self, seconds):
        self.target = None
        self.calls.append("moved")

    def relaunched(self):
        self.calls.append("relaunched")


@pytest.fixture
def moving(run, monkeypatch):
    """`moving(*failures)`: a run that moves after step 3; `failures` meets who launches the roles, in turn."""

    def make(*failures, **how):
        made = run(**how)
        made.adapter = Adapter()
        monkeypatch.setattr(made, "_adapts", lambda cluster, launch_s: made.adapter)
        monkeypatch.setattr(Roles, "fails", failures)
        return made

    return make


def test_it_goes_on_elsewhere_from_a_checkpoint_of_that_step(moving):
    made = moving()
    made.execute()
    assert Roles.latest.starts == [0, 3]
    assert [(flow.first, flow.life) for flow in made.flows] == [(0, 0), (3, 1)]
    assert steps(made) == made.adapter.seen == list(range(1, STEPS + 1))
    assert made.adapter.calls == ["moved"]
    assert made.directory.plan.read_text() == "elsewhere: 1"


def test_a_death_while_it_moves_is_recovered_from(moving):
    made = moving(died())
    made.execute()
    assert Roles.latest.starts == [0, 3]
    assert made.adapter.calls == ["relaunched", "moved"]
    assert steps(made) == list(range(1, STEPS + 1))


def test_a_setting_that_does_not_fit_there_ends_the_run(moving):
    with pytest.raises(Stopped, match=r"no room\. Stopped with a checkpoint of step 3"):
        moving(RunError("no room")).execute()


def test_once_a_node_is_gone_it_stays(moving, monkeypatch):
    made = moving()
    made.cluster.devices = made.cluster.lost = (SimpleNamespace(node="node-1", index=0, kind="cpu"),)
    made.execute()
    assert Roles.latest.starts == [0]
    assert [flow.first for flow in made.flows] == [0, 3]
    assert made.adapter.calls == []


def test_after_a_death_the_first_step_of_new_processes_is_told_of(run, monkeypatch):
    made = run({2: died()})
    adapter = Adapter()
    monkeypatch.setattr(adapter, "step", lambda report, saved: False)
    monkeypatch.setattr(made, "_adapts", lambda cluster, launch_s: adapter)
    made.execute()
    assert adapter.calls == ["relaunched"]

"""A training run from start to end: cluster, roles, workflow, checkpoints, and what happens when it is stopped or a process
dies."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.flow.incident import Action, Incident
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.runs.adapting import Adapter
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.flow import Interlude, RunFlow
from rlinf_cli.runs.incidents import Incidents
from rlinf_cli.runs.lifecycle import Lifecycle
from rlinf_cli.runs.preflight import Prepared, placed
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.record import Record
from rlinf_cli.runs.roles import Roles
from rlinf_cli.runs.saving import Saver
from rlinf_cli.runs.state import RunState
from rlinf_cli.runs.step import RunStep, StepReport

PATIENCE_S = 60.0
"""How long an interrupted run may take to end its calls, and as long again to write its checkpoint."""


class Interrupted(RlinfError):
    """Ctrl-C or SIGTERM. The message says what was saved and how to go on."""

    exit_code = 130


class Stopped(RunError):
    """The run failed. The message says why, what was saved and how to go on; the exit code is that of the cause."""

    def __init__(self, cause: RlinfError, last_words: str) -> None:
        super().__init__(f"{str(cause).rstrip('.')}. {last_words}")
        self.exit_code = cause.exit_code


class TrainRun:
    """One attempt at a run: `execute()` trains to the last step, or saves what it can and raises.

    The workflow has several lives where the role that holds the state dies: each goes on from the last checkpoint, with the
    other roles as they are.
    """

    def __init__(self, prepared: Prepared, directory: RunDirectory, logs: Path, resume: Checkpoint | None,
                 progress: Progress) -> None:
        self._prepared, self._config = prepared, prepared.config
        self._directory, self._logs, self._resume, self._progress = directory, logs, resume, progress
        self._first = 0 if resume is None else resume.step
        self._checkpoints = Checkpoints(directory.checkpoints, self._config.checkpoint.keep_last,
                                        self._config.checkpoint.best)
        self._lifecycle = Lifecycle(plugins(), progress, logs)
        self._incidents = Incidents(directory.incidents, progress, lambda: self._record.report.number)
        self._record = Record(self._config, directory, progress, self._lifecycle, prepared.stream.per_batch,
                              _state(resume), self._incidents.metrics)
        self._saver = Saver(self._config, self._checkpoints, self._record, self._lifecycle, lambda: prepared.fingerprint)
        self._saver.saved = self._first or None
        self._adapter: Adapter | None = None

    @property
    def warning(self) -> str:
        """Why nothing has been learned, once there have been some steps; empty when something may have been."""
        return self._record.warning

    def execute(self) -> None:
        """Train. Raises Interrupted (130) or Stopped, after writing a checkpoint of the last trained step where
        the actor still lives."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(terminate_as_interrupt())
            stack.enter_context(self._lifecycle.until_end(lambda: self._record.report.number))
            self._checkpoints.recover()
            if self._resume is not None:
                self._checkpoints.rewind(self._resume.step)
            cluster = stack.enter_context(self._start_cluster())
            try:
                self._lives(cluster)
            except KeyboardInterrupt:  # while roles are launched, or a second one while saving
                raise Interrupted(self._last_words("interrupted")) from None

    def _lives(self, cluster: Cluster) -> None:
        roles = self._launch(cluster)
        life = 0
        while (end := self._live(cluster, roles, life)) is not None:
            if isinstance(end, Interlude):
                self._move(cluster, roles)
            else:
                self._recover(cluster, roles, end)
            life += 1

    def _start_cluster(self) -> Cluster:
        self._progress.phase("starting Ray")
        cluster = self._config.cluster
        return Cluster.start(cluster.devices, cluster.address, self._logs, cluster.start_timeout_s, cluster.call_timeout_s,
                             self._directory.path, self._directory.events if self._config.log.events else None,
                             cluster.stall_timeout_s, cluster.restarts)

    def _launch(self, cluster: Cluster) -> Roles:
        self._progress.phase("loading the model")
        if self._prepared.beginning is None:
            self._place(cluster)
        roles = Roles(self._prepared, cluster)
        cluster.on_incident, cluster.before_resume = self._incidents.add, roles.send_weights
        self._directory.write_plan(roles.placement.to_yaml())
        began = time.monotonic()
        self._launch_roles(cluster, roles)
        self._adapter = self._adapts(cluster, time.monotonic() - began)
        self._saver.start(roles.trained, None if self._resume is None else self._first)
        # not before: settings that cannot start must not stay with a run that could go on
        self._directory.write_config(self._config.to_yaml())
        return roles

    def _place(self, cluster: Cluster) -> None:
        """On the devices of a cluster that was there before."""
        own = None if self._resume is None else self._directory.profile
        self._prepared = placed(self._prepared, len(cluster.devices), cluster.devices[0].kind, own)
        assert self._prepared.beginning is not None
        self._progress.message("plan", self._prepared.beginning.line)

    def _launch_roles(self, cluster: Cluster, roles: Roles) -> None:
        try:
            roles.launch(self._resume)
        except RlinfError as error:
            death = _death(error)
            if death is None:  # a setting that does not fit, or a model that is not there
                raise
            self._recover_if_possible(cluster, roles, death, error)

    def _adapts(self, cluster: Cluster, launch_s: float) -> Adapter | None:
        """None where there is nothing to choose, or somebody has chosen."""
        beginning = self._prepared.beginning
        if beginning is None or not beginning.adapts:
            return None
        return Adapter(self._config, list(self._prepared.roles.values()), beginning, len(cluster.devices),
                       cluster.devices[0].kind, launch_s, lambda text: self._progress.message("plan", text),
                       self._directory.profile)

    def _live(self, cluster: Cluster, roles: Roles, life: int) -> WorkerDiedError | Interlude | None:
        """Train from where the record stands; why it is to be gone on with, a death that can be recovered from or a better
        placement, or None at the end of the run."""
        self._progress.phase("training")
        report, devices = self._record.report, {device.index: f"{device.node} {device.kind}:{device.index}"
                                                for device in cluster.devices}

        def on_step(report: StepReport) -> None:
            if self._adapter is not None:
                self._adapter.compare(report)
            self._record.step(report)
            cluster.progressed()
            is_saved = self._saver.is_due(report.number)
            if is_saved:
                self._saver.save(report.number)
            # a run that writes none now and then may do so after any step
            if self._adapter is not None and self._adapter.step(report, is_saved or not self._config.checkpoint.every):
                flow.leave()

        with self._record.open(devices, self._prepared.evaluation is not None):
            flow = RunFlow(self._config, roles.groups, self._prepared.stream, report.number, report.batches, on_step,
                           self._prepared.evaluation, self._progress.phase, self._saver.order, self._saver.is_due, life,
                           self._look)
            if not life:
                self._lifecycle.start(self._config, self._directory.path, self._first)
            return self._train(flow, cluster)

    def _look(self, step: RunStep) -> None:
        if self._adapter is not None:
            self._adapter.look(step)

    def _train(self, flow: RunFlow, cluster: Cluster) -> WorkerDiedError | Interlude | None:
        try:
            self._prepared.workflow.run(flow)
            if self._record.report.number < self._config.steps:
                raise RunError(f"the workflow ended after step {self._record.report.number} of {self._config.steps}")
            self._saver.save(self._config.steps)
        except Interlude as interlude:
            return interlude
        except KeyboardInterrupt:
            flow.finish_made(PATIENCE_S)
            _cancel(flow, "the run was interrupted")
            raise Interrupted(self._last_words("interrupted", flow)) from None
        except RlinfError as error:
            _cancel(flow, f"the run failed: {error}")
            death = _death(error)
            if death is not None and cluster.may_recover(death):
                return death
            error = self._saver.explain(error)
            raise Stopped(error, self._last_words("stopped", flow, error)) from error
        return None

    def _move(self, cluster: Cluster, roles: Roles) -> None:
        """Go on where the adapter says, from what has been trained; nowhere else once a node is gone."""
        assert self._adapter is not None
        target = self._adapter.target
        assert target is not None
        if lost := {device.node for device in cluster.devices} - {device.node for device in cluster.living()}:
            self._progress.message("plan", f"does not change any more: {', '.join(sorted(lost))} is gone")
            self._adapter = None
            return
        self._progress.phase("moving to another placement")
        began = time.monotonic()
        try:
            self._saver.save(self._record.report.number)
            start = self._checkpoints.newest()
            assert start is not None
            roles.move(target, start)
        except RlinfError as error:
            self._recover_if_possible(cluster, roles, _death(error), error)
        else:
            self._saver.start(roles.trained, start.step)
        self._directory.write_plan(roles.placement.to_yaml())
        if roles.placement is target:
            self._adapter.moved(time.monotonic() - began)

    def _recover(self, cluster: Cluster, roles: Roles, death: WorkerDiedError) -> None:
        """Launch the roles that hold the state again, from the newest checkpoint that is complete, and go back to it."""
        self._progress.phase(f"{death.role} is recovered")
        began = time.monotonic()
        self._checkpoints.recover()
        start = self._checkpoints.newest()
        if start is not None:
            self._checkpoints.rewind(start.step)
        try:
            roles.relaunch(start)
        except RlinfError as error:
            again = _death(error)
            if again is None:
                self._note(death, "gave up", why=f"; {error}")
            return self._recover_if_possible(cluster, roles, again, error)
        self._saver.start(roles.trained, None if start is None else start.step)
        self._note(death, "recovered", "nothing saved" if start is None else f"the checkpoint of step {start.step}",
                   seconds=time.monotonic() - began)
        self._record.rewind(_state(start))
        if self._adapter is not None:
            self._adapter.relaunched()
        return None

    def _recover_if_possible(self, cluster: Cluster, roles: Roles, death: WorkerDiedError | None, error: RlinfError) -> None:
        """After an error while roles were launched, behind which there may be a death."""
        if death is None or not cluster.may_recover(death):
            raise Stopped(error, self._last_words("stopped")) from error
        self._recover(cluster, roles, death)

    def _note(self, death: WorkerDiedError, action: Action, detail: str = "", why: str = "", seconds: float = 0.0) -> None:
        self._incidents.add(Incident(time.time(), death.role, death.rank, death.node, death.what + why, action, detail, seconds))

    def _last_words(self, what: str, flow: RunFlow | None = None, cause: RlinfError | None = None) -> str:
        """Save what was trained, if that is still possible, and say how to go on."""
        note = ""
        if flow is not None:
            try:
                self._save_trained(flow)
            except (RlinfError, OSError) as error:
                note = "" if str(error) == str(cause) else f"The last steps could not be saved ({error}). "
        saved = self._saver.saved
        if not saved:
            return f"{note}{what.capitalize()} before the first step was saved; nothing to resume"
        return (f"{note}{what.capitalize()} with a checkpoint of step {saved}; "
                f"go on with: rlinf train --resume {self._directory.path}")

    def _save_trained(self, flow: RunFlow) -> None:
        trained = self._saver.trained()
        if trained > self._record.report.number:
            flow.catch_up()  # a step that took longer to train than an interrupt waits
        self._saver.save(trained)


def _state(checkpoint: Checkpoint | None) -> RunState:
    return RunState() if checkpoint is None else RunState.of(checkpoint.state)


def _cancel(flow: RunFlow, reason: str) -> None:
    """What cannot be saved of a step that is reported now is told by whoever saves at the end."""
    with contextlib.suppress(RlinfError):
        flow.cancel(reason, PATIENCE_S)


def _death(error: BaseException | None) -> WorkerDiedError | None:
    """That the error is, or follows from."""
    while isinstance(error, WorkerError):
        error = error.cause
    return error if isinstance(error, WorkerDiedError) else None


@contextlib.contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, as schedulers send it, ends a run like Ctrl-C. A second signal while saving ends it at once."""

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

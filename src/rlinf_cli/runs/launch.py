"""A training run from start to end: cluster, groups, workflow, checkpoints, and what happens when it is stopped."""

from __future__ import annotations

import contextlib
import importlib
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.group import Group
from rlinf_cli.plugins.lifecycle import CheckpointWritten, StepEnd
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.diagnosis import Diagnosis
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.flow import RunFlow, StepReport
from rlinf_cli.runs.jsonl import finite_or_none
from rlinf_cli.runs.lifecycle import Lifecycle
from rlinf_cli.runs.metrics import MetricsWriter
from rlinf_cli.runs.naming import step_name
from rlinf_cli.runs.preflight import Prepared, place
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.samples import SamplesWriter
from rlinf_cli.runs.state import RunState
from rlinf_cli.runs.trace import TraceWriter

PATIENCE_S = 60.0
"""How long an interrupted run may take to end its calls, and as long again to write its checkpoint."""

DIAGNOSED_AFTER = 5
"""Steps after which a run in which nothing is learned is told why."""


class Interrupted(RlinfError):
    """Ctrl-C or SIGTERM. The message says what was saved and how to go on."""

    exit_code = 130


class Stopped(RunError):
    """The run failed. The message says why, what was saved and how to go on; the exit code is that of the cause."""

    def __init__(self, cause: RlinfError, last_words: str) -> None:
        super().__init__(f"{str(cause).rstrip('.')}. {last_words}")
        self.exit_code = cause.exit_code


@dataclass
class Totals:
    """What counts up over the whole run, resumes included."""

    tokens: int = 0
    samples: int = 0

    def add(self, report: StepReport) -> dict[str, float]:
        self.tokens += report.tokens
        self.samples += report.count
        return {"progress/tokens": float(self.tokens), "progress/samples": float(self.samples)}


class TrainRun:
    """One attempt at a run: `execute()` trains to the last step, or saves what it can and raises."""

    def __init__(self, prepared: Prepared, directory: RunDirectory, logs: Path, resume: Checkpoint | None,
                 progress: Progress) -> None:
        self._prepared, self._config = prepared, prepared.config
        self._directory, self._logs, self._resume, self._progress = directory, logs, resume, progress
        self._first = 0 if resume is None else resume.step
        self._saved = self._first if resume is not None else None
        self._checkpoints = Checkpoints(directory.checkpoints, self._config.checkpoint.keep_last,
                                        self._config.checkpoint.best)
        state = RunState() if resume is None else RunState.of(resume.state)
        self._totals = Totals(state.tokens, state.samples)
        self._report = StepReport(self._first, batches=state.batches_of(self._config.rollout.prompts))
        self._diagnosis = Diagnosis(self._config.rollout.max_new_tokens)
        self._lifecycle = Lifecycle(plugins(), progress, logs)
        self._actor: Group | None = None
        self._flow: RunFlow | None = None
        self._trace: TraceWriter | None = None

    @property
    def warning(self) -> str:
        """Why nothing has been learned, once there have been some steps; empty when something may have been."""
        return self._diagnosis.cause() if self._diagnosis.steps >= DIAGNOSED_AFTER else ""

    def execute(self) -> None:
        """Train. Raises Interrupted (130) or Stopped, after writing a checkpoint of the last trained step where
        the actor still lives."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(terminate_as_interrupt())
            stack.enter_context(self._lifecycle.until_end(lambda: self._report.number))
            self._checkpoints.recover()
            if self._resume is not None:
                self._checkpoints.rewind(self._resume.step)
            cluster = stack.enter_context(self._start_cluster())
            metrics = stack.enter_context(MetricsWriter(self._directory.metrics, self._first))
            samples = stack.enter_context(SamplesWriter(self._directory.samples, self._first))
            evaluated = stack.enter_context(self._eval_samples())
            self._trace = stack.enter_context(self._open_trace(cluster))
            self._flow = RunFlow(self._config, self._launch(cluster), self._prepared.stream, self._first,
                                 self._report.batches, lambda report: self._on_step(report, metrics, samples, evaluated),
                                 self._prepared.evaluation, self._progress.phase)
            self._train(self._flow)

    def _train(self, flow: RunFlow) -> None:
        try:
            self._lifecycle.start(self._config, self._directory.path, self._first)
            self._prepared.workflow.run(flow)
            if self._report.number < self._config.steps:
                raise RunError(f"the workflow ended after step {self._report.number} of {self._config.steps}")
            self._save()
        except KeyboardInterrupt:
            flow.cancel("the run was interrupted", PATIENCE_S)
            raise Interrupted(self._last_words("interrupted")) from None
        except RlinfError as error:
            flow.cancel(f"the run failed: {error}", PATIENCE_S)
            raise Stopped(error, self._last_words("stopped", error)) from error

    def _start_cluster(self) -> Cluster:
        self._progress.phase("starting Ray")
        cluster = self._config.cluster
        return Cluster.start(cluster.devices, cluster.address, self._logs, cluster.start_timeout_s,
                             cluster.call_timeout_s, self._directory.path)

    def _launch(self, cluster: Cluster) -> Mapping[str, Group]:
        self._progress.phase("loading the model")
        roles = self._prepared.roles
        devices = cluster.devices
        placement = self._prepared.placement or place(self._config, list(roles.values()), len(devices), devices[0].kind)
        self._directory.write_plan(placement.to_yaml())
        groups = {}
        for name, role in roles.items():
            arguments: dict[str, Any] = {}
            if role.stateful and self._resume is not None:
                arguments = {"checkpoint": str(self._resume.path), "step": self._resume.step}
            groups[name] = cluster.launch(name, load_worker(role.worker), placement[name], self._config, **arguments)
            if role.stateful:
                self._actor = groups[name]
        for group in groups.values():
            group.ready(self._config.cluster.start_timeout_s)
        # not before: settings that cannot start must not stay with a run that could go on
        self._directory.write_config(self._config.to_yaml())
        self._progress.phase("training")
        return groups

    def _eval_samples(self) -> contextlib.AbstractContextManager[SamplesWriter | None]:
        """None, and no file, where nothing is evaluated and nothing was before a resume."""
        path = self._directory.eval_samples
        is_needed = self._prepared.evaluation is not None or path.exists()
        return SamplesWriter(path, self._first) if is_needed else contextlib.nullcontext()

    def _open_trace(self, cluster: Cluster) -> TraceWriter:
        devices = {device.index: f"{device.node} {device.kind}:{device.index}" for device in cluster.devices}
        return TraceWriter(self._directory.trace, self._config.log.trace, self._first, devices,
                           lambda text: self._progress.message("warning", text))

    def _on_step(self, report: StepReport, metrics: MetricsWriter, samples: SamplesWriter,
                 evaluated: SamplesWriter | None) -> None:
        report.metrics.update(self._totals.add(report))
        self._report = report
        metrics.write(report.number, report.metrics)
        samples.write(report.number, report.samples)
        self._lifecycle.step(StepEnd(report.number, report.metrics, report.samples))
        if evaluated is not None:
            evaluated.write(report.number, report.evaluated)
        self._progress.step(report.number, report.metrics, report.samples)
        self._tell(report)
        if self._trace is not None:
            self._trace.step(report.number, report.metrics, report.time, report.evaluation)
        every = self._config.checkpoint.every
        if every and report.number % every == 0:
            self._save()

    def _tell(self, report: StepReport) -> None:
        """What the user should know of a step besides its numbers."""
        for sentence in report.left_out:
            self._progress.message("left out", sentence)
        if not report.number:
            return  # no step, but the evaluation before the first
        self._diagnosis.add(report.metrics, report.samples)
        if self._diagnosis.steps == DIAGNOSED_AFTER and self.warning:
            self._progress.message("warning", self.warning)

    def _save(self) -> None:
        """Checkpoint the trained steps, unless they are saved already."""
        assert self._actor is not None
        limit = self._config.cluster.call_timeout_s
        step = self._actor.trained_steps().wait(limit)[0]
        if step > self._report.number and self._flow is not None:
            self._flow.catch_up()  # a step that took longer to train than an interrupt waits
        if step == (self._saved or 0):
            return
        began = time.monotonic()
        with self._checkpoints.write(step, self._state(step).to_json()) as path:
            self._actor.save(str(path)).wait(limit)
        self._saved = step
        if self._trace is not None:
            self._trace.checkpoint(began)
        self._lifecycle.checkpoint(CheckpointWritten(step, self._directory.checkpoints / step_name(step),
                                                     self._checkpoints.best_step() == step))

    def _state(self, step: int) -> RunState:
        metrics = self._report.metrics if self._report.number == step else {}
        return RunState(step, self._totals.tokens, self._totals.samples, self._report.batches,
                        self._config.rollout.prompts, self._prepared.fingerprint,
                        {name: finite_or_none(value) for name, value in metrics.items()})

    def _last_words(self, what: str, cause: RlinfError | None = None) -> str:
        """Save what was trained, if that is still possible, and say how to go on."""
        try:
            if self._actor is not None:
                self._save()
        except (RlinfError, OSError) as error:
            note = "" if str(error) == str(cause) else f"The last steps could not be saved ({error}). "
        else:
            note = ""
        if not self._saved:
            return f"{note}{what.capitalize()} before the first step was saved; nothing to resume"
        return (f"{note}{what.capitalize()} with a checkpoint of step {self._saved}; "
                f"go on with: rlinf train --resume {self._directory.path}")


def load_worker(reference: str) -> type:
    """The class of `Role.worker`."""
    module, _, name = reference.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


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

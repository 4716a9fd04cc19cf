"""A training run from start to end: cluster, groups, workflow, checkpoints, and what happens when it is stopped."""

from __future__ import annotations

import contextlib
import importlib
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.group import Group
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.flow import RunFlow, StepReport
from rlinf_cli.runs.metrics import MetricsWriter
from rlinf_cli.runs.preflight import Prepared, place
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.samples import SamplesWriter

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
        self._checkpoints = Checkpoints(directory.checkpoints, self._config.checkpoint.keep_last)
        state = {} if resume is None else resume.state
        self._totals = Totals(state.get("tokens", 0), state.get("samples", 0))
        self._batches = state.get("batches", self._first)
        self._actor: Group | None = None

    def execute(self) -> None:
        """Train. Raises Interrupted (130) or Stopped, after writing a checkpoint of the last trained step where
        the actor still lives."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_terminate_as_interrupt())
            self._checkpoints.recover()
            if self._resume is not None:
                self._checkpoints.rewind(self._resume.step)
            cluster = stack.enter_context(self._start_cluster())
            metrics = stack.enter_context(MetricsWriter(self._directory.metrics, self._first))
            samples = stack.enter_context(SamplesWriter(self._directory.samples, self._first))
            flow = RunFlow(self._config, self._launch(cluster), self._prepared.stream, self._first,
                           self._batches, lambda report: self._on_step(report, metrics, samples))
            self._train(flow)

    def _train(self, flow: RunFlow) -> None:
        try:
            self._prepared.workflow.run(flow)
            self._save()
        except KeyboardInterrupt:
            flow.cancel("the run was interrupted", PATIENCE_S)
            raise Interrupted(self._last_words("interrupted")) from None
        except RlinfError as error:
            flow.cancel(f"the run failed: {error}", PATIENCE_S)
            raise Stopped(error, self._last_words("stopped")) from error

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
            groups[name] = cluster.launch(name, _worker(role.worker), placement[name], self._config, **arguments)
            if role.stateful:
                self._actor = groups[name]
        for group in groups.values():
            group.ready(self._config.cluster.start_timeout_s)
        self._progress.phase("training")
        return groups

    def _on_step(self, report: StepReport, metrics: MetricsWriter, samples: SamplesWriter) -> None:
        report.metrics.update(self._totals.add(report))
        self._batches = report.batches
        metrics.write(report.number, report.metrics)
        samples.write(report.number, report.samples)
        self._progress.step(report.number, report.metrics, report.samples)
        every = self._config.checkpoint.every
        if every and report.number % every == 0:
            self._save()

    def _save(self) -> None:
        """Checkpoint the trained steps, unless they are saved already."""
        assert self._actor is not None
        limit = self._config.cluster.call_timeout_s
        step = self._actor.trained_steps().wait(limit)[0]
        if step == (self._saved or 0):
            return
        state = {"step": step, "tokens": self._totals.tokens, "samples": self._totals.samples,
                 "batches": self._batches}
        with self._checkpoints.write(step, state) as path:
            self._actor.save(str(path)).wait(limit)
        self._saved = step

    def _last_words(self, what: str) -> str:
        """Save what was trained, if that is still possible, and say how to go on."""
        try:
            if self._actor is not None:
                self._save()
        except (RlinfError, OSError) as error:
            note = f"The last steps could not be saved ({error}). "
        else:
            note = ""
        if not self._saved:
            return f"{note}{what.capitalize()} before the first step was saved; nothing to resume"
        return (f"{note}{what.capitalize()} with a checkpoint of step {self._saved}; "
                f"go on with: rlinf train --resume {self._directory.path}")


def _worker(reference: str) -> type:
    module, _, name = reference.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """SIGTERM, as schedulers send it, ends a run like Ctrl-C. A second signal while saving ends it at once."""

    def interrupt(signum: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

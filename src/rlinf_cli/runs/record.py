"""What is written down, shown and told of each step of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.plugins.lifecycle import StepEnd
from rlinf_cli.rl.diagnosis import Diagnosis
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.jsonl import finite_or_none
from rlinf_cli.runs.lifecycle import Lifecycle
from rlinf_cli.runs.metrics import MetricsWriter
from rlinf_cli.runs.progress import Progress
from rlinf_cli.runs.samples import SamplesWriter
from rlinf_cli.runs.state import RunState
from rlinf_cli.runs.step import StepReport
from rlinf_cli.runs.trace import TraceWriter
from rlinf_cli.runs.videos import write_videos

DIAGNOSED_AFTER = 5
"""Steps after which a run in which nothing is learned is told why."""


@dataclass
class Totals:
    """What counts up over the whole run, resumes included."""

    tokens: int = 0
    samples: int = 0
    env_steps: int = 0

    def add(self, report: StepReport) -> dict[str, float]:
        self.tokens += report.tokens
        self.samples += report.count
        self.env_steps += report.env_steps
        return {"progress/tokens": float(self.tokens), "progress/samples": float(self.samples),
                **({"progress/env_steps": float(self.env_steps)} if self.env_steps else {})}


class Record:
    """Stands where the run stands: `report` is of the last step. Files are there within `open`.

    `per_batch`: prompts in a batch of the data · `fingerprint`: of the data · `more`: metrics that are not of the step alone.
    """

    def __init__(self, config: RunConfig, directory: RunDirectory, progress: Progress, lifecycle: Lifecycle, per_batch: int,
                 start: RunState, more: Callable[[], Mapping[str, float]] = dict) -> None:
        self._config, self._directory, self._progress, self._lifecycle = config, directory, progress, lifecycle
        self._per_batch, self._more = per_batch, more
        self._diagnosis = Diagnosis(config.rollout.max_new_tokens)
        self._told = start.step
        self.rewind(start)

    @property
    def warning(self) -> str:
        """Why nothing has been learned, once there have been some steps; empty when something may have been."""
        return self._diagnosis.cause() if self._diagnosis.steps >= DIAGNOSED_AFTER else ""

    def rewind(self, start: RunState) -> None:
        """Stand where the run stood then; the next `open` cuts off what was written of later steps."""
        self.totals = Totals(start.tokens, start.samples, start.env_steps)
        self.report = StepReport(start.step, batches=start.batches_of(self._per_batch))

    @contextlib.contextmanager
    def open(self, devices: Mapping[int, str], evaluates: bool) -> Iterator[None]:
        """`devices`: number -> name · `evaluates`: whether there are evaluations."""
        after, files = self.report.number, self._directory
        with contextlib.ExitStack() as stack:
            self._metrics = stack.enter_context(MetricsWriter(files.metrics, after))
            self._samples = stack.enter_context(SamplesWriter(files.samples, after))
            # no file where nothing is evaluated, and nothing was before a resume
            is_needed = evaluates or files.eval_samples.exists()
            self._evaluated = stack.enter_context(SamplesWriter(files.eval_samples, after)) if is_needed else None
            self._trace = stack.enter_context(TraceWriter(
                files.trace, self._config.log.trace, after, devices, lambda text: self._progress.message("warning", text)))
            yield

    def step(self, report: StepReport) -> None:
        """Raises RunError when the disk refuses."""
        report.metrics.update({**self.totals.add(report), **self._more()})
        self.report = report
        self._metrics.write(report.number, report.metrics)
        self._samples.write(report.number, report.samples)
        if report.number > self._told or not report.number:  # a step that is trained again is none to plugins
            self._lifecycle.step(StepEnd(report.number, report.metrics, report.samples))
            self._told = report.number
        if self._evaluated is not None:
            self._evaluated.write(report.number, report.evaluated)
        write_videos(self._directory.path, report.number, report.videos)
        self._progress.step(report.number, report.metrics, report.samples)
        self._tell(report)
        self._trace.step(report.number, report.metrics, report.time, report.evaluation)

    def checkpoint(self, began: float) -> None:
        """One has been written since `began`, by `time.monotonic`."""
        self._trace.checkpoint(began)

    def state(self, step: int, fingerprint: str) -> RunState:
        """Where the run stands after `step` steps, the last reported one."""
        metrics = self.report.metrics if self.report.number == step else {}
        return RunState(step, self.totals.tokens, self.totals.samples, self.report.batches, self._per_batch, fingerprint,
                        {name: finite_or_none(value) for name, value in metrics.items()}, self.totals.env_steps)

    def _tell(self, report: StepReport) -> None:
        """What the user should know of a step besides its numbers."""
        for sentence in report.left_out:
            self._progress.message("left out", sentence)
        if not report.number:
            return  # no step, but the evaluation before the first
        self._diagnosis.add(report.metrics, report.samples)
        if self._diagnosis.steps == DIAGNOSED_AFTER and self.warning:
            self._progress.message("warning", self.warning)

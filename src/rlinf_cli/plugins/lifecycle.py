"""What the lifecycle hooks are told: one context object each, to which fields may be added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ChosenLogger:
    """One of `log.loggers`."""

    name: str
    open: Callable[[Any], Any]
    """From a `rlinf_cli.api.RunInfo` to the `rlinf_cli.api.Logger`; imports what it needs when it is called."""


@dataclass(frozen=True)
class RunStart:
    """For `on_run_start`."""

    name: str
    directory: Path
    """The run directory."""
    config: Mapping[str, Any]
    """Every key with its value, a mapping a section; secrets are hidden."""
    step: int
    """Steps trained so far: more than 0 when a run is resumed."""
    steps: int
    """Steps that the run is to have."""
    logs: Path
    """Directory for the logs of this attempt."""
    loggers: Sequence[ChosenLogger]
    message: Callable[[str], None] = field(repr=False)
    """Shows the user a line."""


@dataclass(frozen=True)
class StepEnd:
    """For `on_step_end`."""

    step: int
    """Counted from 1; 0 is the evaluation before the first step, which has no other metrics than its own."""
    metrics: Mapping[str, float]
    samples: Sequence[Any]
    """The samples that are written down (`log.samples`), as `rlinf_cli.api.Sample`."""


@dataclass(frozen=True)
class CheckpointWritten:
    """For `on_checkpoint`."""

    step: int
    directory: Path
    is_best: bool
    """Whether it is the best so far by `checkpoint.best`."""


@dataclass(frozen=True)
class RunEnd:
    """For `on_run_end`."""

    status: str
    """`finished`, `failed` or `interrupted`."""
    step: int
    """Steps trained."""
    reason: str
    """Why it ended, in a sentence."""

"""What a logger is: takes a run's metrics to a tracker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class RunInfo:
    """The run that a logger is opened for."""

    name: str
    directory: Path
    config: Mapping[str, Any]
    """Every key with its value, a mapping a section; secrets are hidden."""
    step: int
    """Steps trained so far: more than 0 when a run is resumed. What a tracker has of later steps no longer counts."""
    tracker_id: str = ""
    """What `tracker_id` of the logger was in the attempt before; empty at the first."""
    logged: int = -1
    """The last step that the logger got in attempts before: more than `step` when the run goes back to a checkpoint;
    -1: none."""


class Logger(Protocol):
    """Target of a logger extension, built as `Logger(config, run)` in the driver's process. What it raises is reported
    once and ends this logger, not the run. A text `place`, if it has one, tells the user where to look."""

    tracker_id: str
    """The tracker's own identity of the run, kept with the run so that a resume goes on in it."""

    def __init__(self, config: Any, run: RunInfo) -> None: ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """The metrics of a step, as `metrics.jsonl` has them."""
        ...

    def close(self, status: str) -> None:
        """`finished`, `failed` or `interrupted`."""
        ...

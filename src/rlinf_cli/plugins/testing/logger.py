"""Whether a logger keeps the contract of `rlinf_cli.api.Logger`, over a run that is resumed."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from rlinf_cli.api import RunInfo
from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of

METRICS = {"reward/mean": 0.5, "actor/loss": -1e-9, "timing/step_s": 1e9, "eval/digits/mean@1": 1.0, "actor/kl": math.nan}
CONFIG = {"seed": 0, "steps": 4, "model": {"name": "tiny:digits"}, "log": {"loggers": ["x"]}}


def check_logger(target: Any, config: Any = None) -> None:
    """Raise AssertionError unless it takes all kinds of metrics and goes on in the same run of its tracker after a resume.

    `target`: the class, built as `target(config, run)`, or its extension.
    """
    logger_class, config = target_of(target, config)
    with tempfile.TemporaryDirectory() as folder:
        run_all(_Case(logger_class, config, Path(folder)).goes_on_after_a_resume)


class _Case:
    def __init__(self, logger_class: Any, config: Any, directory: Path) -> None:
        self._class, self._config, self._directory = logger_class, config, directory

    def goes_on_after_a_resume(self) -> None:
        first = self._attempt(0, "", -1, steps=(0, 1, 2, 3), status="interrupted")
        again = self._attempt(2, first, 3, steps=(3, 4), status="finished")
        require(
            again == first,
            f"after a resume tracker_id is {again!r}, before it was {first!r}: the metrics must go on in the same "
            "run of the tracker",
        )

    def _attempt(self, step: int, tracker_id: str, logged: int, steps: tuple[int, ...], status: str) -> str:
        """Its `tracker_id`."""
        logger = self._class(self._config, RunInfo("run-1", self._directory, CONFIG, step, tracker_id, logged))
        found: str = logger.tracker_id
        require(isinstance(found, str) and bool(found), f"tracker_id must be a text that is not empty; it is {found!r}")
        require(
            isinstance(getattr(logger, "place", ""), str), f"place must be a text, not {a(getattr(logger, 'place', ''))}"
        )
        for number in steps:
            metrics = dict(METRICS)
            # an evaluation has other metrics than a step, and a step may have some that others have not
            logger.log(number, {"eval/digits/mean@1": 0.0} if number == 0 else metrics)
            require(metrics.keys() == METRICS.keys(), "log() must not change the metrics: other loggers get them too")
        logger.close(status)
        return found

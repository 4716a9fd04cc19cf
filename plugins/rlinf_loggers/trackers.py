"""The loggers of one run: opened, fed and closed, each on its own, and remembered for the next attempt."""

from __future__ import annotations

import contextlib
import json
import os
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlinf_cli.api import ChosenLogger, Logger, RunInfo, RunStart

RECORD = "trackers.json"
"""File in the run directory: name of a logger -> `id`, the tracker's own identity of the run, and `step`, its last."""


class Trackers:
    """A logger that raises is told, with the traceback in the attempt's logs, and gets nothing more of this attempt."""

    def __init__(self, start: RunStart) -> None:
        self._start = start
        self._path = start.directory / RECORD
        self._record: dict[str, dict[str, Any]] = _read(self._path)
        self._open: dict[str, Logger] = {}
        for chosen in start.loggers:
            with self._isolated(chosen.name):
                self._begin(chosen)
        self._write()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Give the metrics of a step to every logger that still works."""
        for name, logger in list(self._open.items()):
            with self._isolated(name):
                logger.log(step, metrics)
                known = self._record[name]
                known["step"] = max(step, known["step"])
        self._write()

    def close(self, status: str) -> None:
        """Let every logger bring what it has to its place."""
        for name, logger in list(self._open.items()):
            with self._isolated(name):
                logger.close(status)
        self._open.clear()

    def _begin(self, chosen: ChosenLogger) -> None:
        known = self._record.get(chosen.name, {"id": "", "step": -1})
        start = self._start
        logger = chosen.open(RunInfo(start.name, start.directory, start.config, start.step, known["id"], known["step"]))
        self._open[chosen.name] = logger
        self._record[chosen.name] = known | {"id": logger.tracker_id}
        start.message(f"{chosen.name}: {getattr(logger, 'place', logger.tracker_id)}")

    @contextlib.contextmanager
    def _isolated(self, name: str) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:  # a tracker's client: whatever it raises is told and survived
            self._open.pop(name, None)
            self._tell(name, error)

    def _tell(self, name: str, error: BaseException) -> None:
        path = self._start.logs / "loggers.log"
        with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n{''.join(traceback.format_exception(error))}\n")
        what = " ".join(f"{type(error).__name__}: {error}".split())
        self._start.message(f"{name} gets nothing more of this run: {what} (traceback: {path})")

    def _write(self) -> None:
        aside = self._path.with_name(f".{RECORD}.tmp")
        aside.write_text(json.dumps(self._record, indent=2) + "\n", encoding="utf-8")
        os.replace(aside, self._path)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    record: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return record

"""`incidents.jsonl`: what went wrong in a run that went on, or stood still, and what was done about it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

from rlinf_cli.flow.incident import Incident
from rlinf_cli.runs.files import explained
from rlinf_cli.runs.progress import Progress

_RESTARTS = ("restarted", "recovered")


class Incidents:
    """Appends a line as soon as something happens, in whatever thread that is seen, and shows it.

    `step`: the last step that was reported. Lines of attempts before stay, also when the run went back to an earlier step.
    """

    def __init__(self, path: Path, progress: Progress, step: Callable[[], int]) -> None:
        self._path, self._progress, self._step = path, progress, step
        self._lock = threading.Lock()
        self.restarts = sum(line.get("action") in _RESTARTS for line in read_incidents(path))
        """Of processes and roles since the run began."""

    def __enter__(self) -> Incidents:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        """Nothing is held open: most runs have no incident, and no file."""

    def add(self, incident: Incident) -> None:
        """Raises RunError when the disk refuses."""
        step = self._step()
        line = json.dumps({"step": step, **asdict(incident)}, ensure_ascii=False) + "\n"
        with self._lock:
            self.restarts += incident.action in _RESTARTS
            with explained(f"cannot write {self._path}"), self._path.open("ab", buffering=0) as file:
                file.write(line.encode("utf-8", "backslashreplace"))
        self._progress.message("incident", f"after step {step}: {incident}")

    def metrics(self) -> dict[str, float]:
        return {"progress/restarts": float(self.restarts)} if self.restarts else {}


def read_incidents(path: Path) -> list[dict[str, Any]]:
    """A run's incidents, oldest first; [] when there were none. A line that a kill has torn is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return [json.loads(line) for line in lines[:-1] if line.endswith("}")]

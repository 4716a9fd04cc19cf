"""What runs there are, and what is known of one: from its files alone, which may be written to at this moment."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.lock import holder
from rlinf_cli.runs.metrics import read_metrics
from rlinf_cli.runs.naming import BEST, LATEST, RECORD, pointed_step, step_name

_TAIL = 64 << 10
_STEPS = re.compile(r"^steps: *(\d+) *$", re.MULTILINE)

REWARD, TOKENS_PER_S = "reward/mean", "throughput/tokens_per_s"


@dataclass(frozen=True)
class Listed:
    """A run in a line. What is not known is None."""

    name: str
    path: Path
    status: str
    """`created`, `running`, `finished`, `failed`, `interrupted`; `killed`: it left no word; `damaged`: `run.json` cannot be
    read."""
    created: float | None
    """Seconds since 1970."""
    size: int
    """Bytes of all its files."""
    step: int = 0
    """Steps trained."""
    steps: int | None = None
    """Steps that it is to have."""
    first_reward: float | None = None
    reward: float | None = None
    """Of the last step."""
    tokens_per_s: float | None = None
    """Of the last step."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint of a run."""

    step: int
    size: int
    """Bytes."""
    is_latest: bool
    is_best: bool
    problems: tuple[str, ...]
    """What is wrong with it, as far as that shows without reading large files."""
    score: float | None
    """Value of the metric of `checkpoint.best` in its step."""


@dataclass(frozen=True)
class Shown:
    """Everything that is known of a run."""

    listed: Listed
    record: Mapping[str, Any]
    """`run.json`."""
    best: str
    """The metric of `checkpoint.best`."""
    checkpoints: Sequence[Saved]
    rows: Sequence[Mapping[str, float]]
    """All lines of its metrics."""


def list_runs(root: Path) -> list[Listed]:
    """The runs in a directory, the newest first; what is no run is left out. [] when there is no such directory."""
    if not root.is_dir():
        return []
    found = [describe(Path(entry.path)) for entry in os.scandir(root) if os.path.isfile(os.path.join(entry.path, RECORD))]
    return sorted(found, key=lambda run: (run.created or 0.0, run.name), reverse=True)


def describe(path: Path) -> Listed:
    """One run in a line."""
    name, size = path.resolve().name, size_below(path)
    try:
        record = RunDirectory.open(path).info()
    except UsageError:
        return Listed(name, path, "damaged", None, size)
    first, last = ends(path / "metrics.jsonl", REWARD)
    return Listed(name, path, status(record, path), _seconds(record.get("created")), size, int(last.get("step", 0)),
                  _steps(path / "config.yaml"), _finite(first.get(REWARD)), _finite(last.get(REWARD)),
                  _finite(last.get(TOKENS_PER_S)))


def show_run(path: Path) -> Shown:
    """All about one run. Raises UsageError when its record or its metrics are damaged."""
    directory = RunDirectory.open(path)
    best = _best(path / "config.yaml")
    return Shown(describe(path), directory.info(), best, list(_saved(directory, best)), read_metrics(directory.metrics))


def status(record: Mapping[str, Any], path: Path) -> str:
    """How it is with a run; a process that was killed could not write it down."""
    known = str(record.get("status"))
    if known not in ("running", "created") or holder(path) is not None:
        return known
    return "killed" if record["attempts"] else "created"


def size_below(path: str | Path) -> int:
    """Bytes of all files below; what goes away in the meantime counts for nothing."""
    try:
        with os.scandir(path) as entries:
            return sum(map(_size_of, entries))
    except OSError:
        return 0


def _size_of(entry: os.DirEntry[str]) -> int:
    if entry.is_dir(follow_symlinks=False):
        return size_below(entry.path)
    try:
        return entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def ends(path: Path, metric: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first line that has a metric, if one of the first two does, and the last complete line; {} where there is none."""
    try:
        with open(path, "rb") as file:
            first = [_parsed(file.readline()) for _ in range(2)]
            # before the first step there may be an evaluation
            return next((line for line in first if metric in line), first[0]), next(_backwards(file), {})
    except OSError:
        return {}, {}


def _backwards(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Lines from the end, without those that are torn."""
    size = file.seek(0, os.SEEK_END)
    reach = min(_TAIL, size)
    file.seek(size - reach)
    for line in reversed(file.read(reach).split(b"\n")[:-1]):
        if parsed := _parsed(line + b"\n"):
            yield parsed


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("step"), int) else {}


def _saved(directory: RunDirectory, best: str) -> Iterator[Saved]:
    checkpoints = Checkpoints(directory.checkpoints)
    latest = pointed_step(directory.checkpoints / LATEST) or max(checkpoints.steps(), default=None)
    for step in checkpoints.steps():
        checkpoint = Checkpoint(directory.checkpoints / step_name(step), step)
        score = checkpoint.score(best.removeprefix("-")) if best else None
        yield Saved(step, size_below(checkpoint.path), step == latest, step == pointed_step(directory.checkpoints / BEST),
                    tuple(checkpoint.problems()), score)


def _steps(config: Path) -> int | None:
    """Found without reading the YAML: there may be hundreds of runs."""
    try:
        found = _STEPS.search(config.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return int(found[1]) if found else None


def _best(config: Path) -> str:
    from rlinf_cli.runs.settings import read_settings

    return str(read_settings(config).get("checkpoint.best") or "")


def _seconds(stamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (TypeError, ValueError):
        return None


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None

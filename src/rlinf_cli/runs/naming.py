"""Names of runs, and how a user may refer to one."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rlinf_cli.errors import UsageError

RECORD = "run.json"
"""A directory that holds this file is a run directory."""

CHECKPOINTS = "checkpoints"

LATEST, BEST = "latest", "best"
"""Files among the checkpoints that hold the name of one."""

_LONGEST_NAME = 120
_LONGEST_PART = 32
_NAME = re.compile(r"\w[\w.+=,-]*")
_SUFFIXES = re.compile(r"\.(jsonl?|parquet|gguf)$")
_STEP = re.compile(r"step_(\d{6,})")


def check_name(name: str) -> str:
    """Return `name` if it can be a run's; raises UsageError."""
    if not _NAME.fullmatch(name) or len(name.encode()) > _LONGEST_NAME:
        raise UsageError(
            f"run name {name!r} cannot be a directory's name: use at most {_LONGEST_NAME} letters, digits and "
            ". _ - + = , beginning with a letter or a digit (--name)"
        )
    return name


def default_name(algorithm: str, data: str, model: str, now: datetime) -> str:
    """Name of a run that was given none, e.g. `grpo-digits-tiny-20261129-1905`.

    Of paths the last part is kept. Pass it to `RunDirectory.create` with `unique=True`.
    """
    parts = [_plain(part) for part in (algorithm, data, model)]
    return "-".join([*filter(None, parts), now.strftime("%Y%m%d-%H%M")])


def _plain(text: str) -> str:
    last = _SUFFIXES.sub("", text.rstrip("/").rpartition("/")[2])
    return re.sub(r"[^A-Za-z0-9._]+", "-", last)[:_LONGEST_PART].strip("-._")


def step_name(step: int) -> str:
    return f"step_{step:06d}"


def parse_step(name: str) -> int | None:
    """The step of a checkpoint directory's name, or None when it is none."""
    found = _STEP.fullmatch(name)
    return int(found[1]) if found else None


@dataclass(frozen=True)
class Reference:
    """What a user pointed at: a run, and one of its checkpoints where they named it."""

    run: Path
    step: int | None = None


def locate(reference: str | Path, runs: Path = Path("runs")) -> Reference:
    """Find a run by its directory, by its name under `runs`, or by one of its checkpoints.

    A checkpoint is named by its directory, or as `RUN@STEP`, `RUN@best`, `RUN@latest`. Raises UsageError when there is
    no such run, naming those with a similar name, and when it has no best checkpoint.
    """
    found = _find(Path(reference), runs)
    if found is not None:
        return found
    name, at, which = str(reference).rpartition("@")
    run = _find(Path(name), runs) if at else None
    if run is not None and run.step is None:
        return Reference(run.run, _step_called(which, run.run))
    path = Path(name if at else reference)
    if path.is_dir() and len(path.parts) > 1:
        raise UsageError(f"{path} is not a run directory (it has no {RECORD})")
    raise UsageError(f"no run {str(path)!r}: it is neither a run directory nor the name of a run in {runs}/"
                     f"{_similar(path.name, runs)}")


def _find(path: Path, runs: Path) -> Reference | None:
    if (path / RECORD).is_file():
        return Reference(path)
    if path.name == CHECKPOINTS and (path.parent / RECORD).is_file():
        return Reference(path.parent)
    if path.parent.name == CHECKPOINTS and (path.parent.parent / RECORD).is_file():
        return Reference(path.parent.parent, _step_called(path.name, path.parent.parent))
    if len(path.parts) == 1 and (runs / path / RECORD).is_file():
        return Reference(runs / path)
    return None


def _step_called(name: str, run: Path) -> int | None:
    """The step of a checkpoint's name: a number, `step_NNNNNN`, `best`; None for `latest`."""
    if name == LATEST:
        return None
    if name == BEST:
        return _best_step(run)
    step = int(name) if name.isdecimal() else parse_step(name)
    if step is None:
        raise UsageError(f"{name!r} is not a checkpoint of {run}: write {run}@STEP, {run}@{BEST} or {run}@{LATEST}")
    return step


def _best_step(run: Path) -> int:
    step = pointed_step(run / CHECKPOINTS / BEST)
    if step is None:
        raise UsageError(f"{run} has no best checkpoint: it keeps one when checkpoint.best=METRIC is set, once a "
                         "checkpoint is written in a step that has that metric")
    return step


def pointed_step(pointer: Path) -> int | None:
    """The step of the checkpoint that a pointer file names; None when it names none, or is not there."""
    try:
        return parse_step(pointer.read_text(encoding="utf-8").strip())
    except (OSError, ValueError):
        return None


def _similar(name: str, runs: Path) -> str:
    known = [record.parent.name for record in runs.glob(f"*/{RECORD}")]
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f". Did you mean {' or '.join(close)}?" if close else ""

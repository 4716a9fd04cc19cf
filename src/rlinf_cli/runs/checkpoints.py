"""Checkpoints: written aside, on the disk before they count, checked before they are used.

A checkpoint is `checkpoints/step_NNNNNN/`: what the trainer saved (`model/` and its own state), `state.json` (the run's
position) and `manifest.json` (size and checksum of every file). `checkpoints/latest` is a file that holds the name of
the one to go on from, `checkpoints/best` that of the best. A plain file outlives copies to places that know no
symbolic links.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import xxhash

from rlinf_cli.errors import RlinfError, RunError, UsageError
from rlinf_cli.runs.files import (
    aside_of,
    explained,
    files_below,
    reason,
    remove_tree,
    storage_trouble,
    sync,
    sync_tree,
    write_atomically,
)
from rlinf_cli.runs.naming import BEST, CHECKPOINTS, LATEST, Reference, parse_step, pointed_step, step_name

MANIFEST = "manifest.json"
STATE = "state.json"
_WRITING = ".writing-"
_REPLACED = ".replaced-"
_REMOVED = ".removed-"
_CHUNK = 8 << 20
_SMALL = 1 << 20
"""Files up to this size (bytes) are always read when a checkpoint is verified."""


@dataclass(frozen=True)
class _Record:
    size: int
    checksum: str


class _Refused(RunError):
    """By the disk."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that was published."""

    path: Path
    step: int
    """Optimiser steps trained."""

    @property
    def model(self) -> Path:
        """The policy as a Hugging Face directory."""
        return self.path / "model"

    @property
    def adapter(self) -> Path:
        """In place of `model`, where only an adapter was trained: as peft writes it."""
        return self.path / "adapter"

    @property
    def critic(self) -> Path:
        """The critic as a Hugging Face directory, where there is one."""
        return self.path / "critic" / "model"

    @cached_property
    def state(self) -> dict[str, Any]:
        """What the run noted at `Checkpoints.write`."""
        state: dict[str, Any] = json.loads((self.path / STATE).read_text(encoding="utf-8"))
        return state

    def score(self, metric: str) -> float | None:
        """How good it is by a metric, more is better (`-METRIC`: less is); None when its step did not have it."""
        try:
            return score(self.state, metric)
        except (OSError, ValueError):
            return None

    def verify(self, full: bool = False) -> None:
        """Check that every file is there, with its size and, if it is small or `full`, its content.

        Raises UsageError naming what is not.
        """
        if not self.path.is_dir():
            raise UsageError(f"checkpoint {self.path} is missing")
        problems = self.problems(full)
        if problems:
            raise UsageError(f"checkpoint {self.path} is damaged: {'; '.join(problems)}")

    def problems(self, full: bool = False) -> list[str]:
        """What is wrong with each file that is not as it was written; [] when all are."""
        try:
            expected = _read_manifest(self.path / MANIFEST)
        except (OSError, ValueError) as error:
            return [f"{MANIFEST} cannot be read ({reason(error)})"]
        present = set(files_below(self.path)) - {MANIFEST}
        both = [name for name in expected if name in present]
        return [*(f"{name} is missing" for name in sorted(set(expected) - present)),
                *(f"{name} does not belong to it" for name in sorted(present - set(expected))),
                *filter(None, (_problem(self.path / name, name, expected[name], full) for name in both))]


class Checkpoints:
    """The checkpoints of one run. Only the process that holds the run's lock may `recover`, `rewind` and `write`.

    The newest `keep_last` (at least 1) are kept, and the best by the metric `best` (`-METRIC`: less is better), if given.
    """

    def __init__(self, directory: Path, keep_last: int = 1, best: str = "") -> None:
        if keep_last < 1:
            raise ValueError(f"keep_last is {keep_last}: at least the latest checkpoint must be kept")
        self.directory, self._keep_last, self._best = directory, keep_last, best

    @contextlib.contextmanager
    def write(self, step: int, state: Mapping[str, Any]) -> Iterator[Path]:
        """An empty directory for the trainer to fill; a complete checkpoint, the latest, once the block has ended.

        `state` must be JSON; its `metrics` (name -> number) decide which checkpoint is the best. When anything fails, the
        partial directory is removed and the checkpoints before it are as they were; a full or broken disk raises
        RunError, other exceptions pass.
        """
        _text(state)
        with self._guarded(step):
            yield self.begin(step)
            self.commit(step, state)

    def begin(self, step: int) -> Path:
        """An empty directory for the trainer to fill, whenever it gets to it; `commit` makes a checkpoint of it."""
        aside = self._aside(step)
        with self._guarded(step):
            remove_tree(aside)
            self.directory.mkdir(exist_ok=True)
            aside.mkdir()
        return aside

    def commit(self, step: int, state: Mapping[str, Any]) -> None:
        """What was written since `begin` is complete: the latest checkpoint. Raises as `write`."""
        with self._guarded(step):
            aside = self._aside(step)
            if not any(aside.iterdir()):
                raise RunError(f"nothing has come of what was to be written into {aside}: the run's directory must be on a "
                               "file system that the actor's node shares")
            (aside / STATE).write_text(_text(state), encoding="utf-8")
            _seal(aside, step)
            before = self._on_the_way_to(step)
            best = self._best_of(before, Checkpoint(aside, step))
            self._publish(aside, step)
        with explained(f"cannot write {self.directory / BEST}"):
            self._point(BEST, best)
        kept = {step, best, *before[max(0, len(before) - self._keep_last + 1) :]}
        for old in [old for old in self.steps() if old not in kept]:
            self._remove(old)

    def refused(self, step: int, error: Exception) -> RunError | None:
        """The error in a sentence, if it is about the disk that this checkpoint was to be written to."""
        trouble = storage_trouble(error, self.directory)
        if trouble is None or error.__class__ is _Refused:
            return None
        return _Refused(f"cannot write checkpoint {self.directory / step_name(step)}: {trouble}{self._spared()}")

    @contextlib.contextmanager
    def _guarded(self, step: int) -> Iterator[None]:
        """On any error, nothing half done stays; a full or broken disk is said to be that."""
        try:
            yield
        except BaseException as error:
            refused = self.refused(step, error) if isinstance(error, Exception) else None
            self.recover()
            if refused is None:
                raise
            raise refused from error

    def _aside(self, step: int) -> Path:
        return self.directory / f"{_WRITING}{step_name(step)}"

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, ascending."""
        if not self.directory.is_dir():
            return []
        return sorted(step for name in os.listdir(self.directory) if (step := parse_step(name)) is not None)

    def latest(self, full: bool = False) -> Checkpoint | None:
        """The checkpoint to go on from; None before the first.

        Raises UsageError when it is damaged (see `Checkpoint.verify`); the message names an older one that is complete.
        """
        step = self.latest_step()
        return None if step is None else self._checked(step, full)

    def newest(self) -> Checkpoint | None:
        """The newest that leads to where the run is and is complete; None when none is."""
        latest = self.latest_step() or 0
        candidates = [self._at(step) for step in reversed(self.steps()) if step <= latest]
        return next((checkpoint for checkpoint in candidates if not checkpoint.problems(full=True)), None)

    def best_step(self) -> int | None:
        """Step of the best checkpoint; None when there is none."""
        return pointed_step(self.directory / BEST)

    def open(self, step: int, full: bool = False) -> Checkpoint:
        """The checkpoint of a step. Raises UsageError when there is none, or it is damaged (see `Checkpoint.verify`)."""
        steps = self.steps()
        if step not in steps:
            known = f"there are steps {', '.join(map(str, steps))}" if steps else "there is none yet"
            raise UsageError(f"no checkpoint of step {step} in {self.directory}: {known}")
        return self._checked(step, full)

    def rewind(self, step: int) -> None:
        """Go on from the checkpoint of `step`, which becomes the latest. Later ones stay until the next is written."""
        self.open(step)
        self._point(LATEST, step)

    def recover(self) -> None:
        """Before the first `write` of a process: clear away what a killed one left half done."""
        names = os.listdir(self.directory) if self.directory.is_dir() else []
        for name in names:
            if name.startswith(_REPLACED):
                self._restore(name.removeprefix(_REPLACED))
            if name.startswith((_WRITING, _REPLACED, _REMOVED)):
                remove_tree(self.directory / name)
        for pointer in (LATEST, BEST):
            aside_of(self.directory / pointer).unlink(missing_ok=True)

    def _restore(self, name: str) -> None:
        """A kill, while a checkpoint was replaced by one of the same step, may have left neither in place."""
        if not (self.directory / name).exists() and (self.directory / f"{_REPLACED}{name}").exists():
            os.rename(self.directory / f"{_REPLACED}{name}", self.directory / name)

    def latest_step(self) -> int | None:
        """Step of the checkpoint to go on from, whatever state it is in; None before the first."""
        pointer = self.directory / LATEST
        if not pointer.exists():
            # a kill between the first checkpoint and its `latest`
            return max(self.steps(), default=None)
        step = pointed_step(pointer)
        if step is None:
            raise UsageError(f"{pointer} does not hold the name of a checkpoint{self._complete_one()}")
        return step

    def _checked(self, step: int, full: bool) -> Checkpoint:
        checkpoint = Checkpoint(self.directory / step_name(step), step)
        self._restore(checkpoint.path.name)
        try:
            checkpoint.verify(full)
        except UsageError as error:
            raise UsageError(f"{error}{self._complete_one(step, full)}") from None
        return checkpoint

    def _complete_one(self, besides: int | None = None, full: bool = False) -> str:
        others = [self._at(step) for step in reversed(self.steps()) if step != besides]
        complete = next((checkpoint for checkpoint in others if not checkpoint.problems(full)), None)
        return f"; go on from {complete.path}, which is complete" if complete else "; no other one is complete"

    def _at(self, step: int) -> Checkpoint:
        return Checkpoint(self.directory / step_name(step), step)

    def _spared(self) -> str:
        try:
            latest = self.latest()
        except RlinfError:
            return ""
        return f"; the one before it, {latest.path}, is complete" if latest else ""

    def _publish(self, aside: Path, step: int) -> None:
        target = self.directory / step_name(step)
        replaced = self.directory / f"{_REPLACED}{step_name(step)}"
        if target.exists():
            remove_tree(replaced)
            os.rename(target, replaced)
        os.rename(aside, target)
        sync(self.directory)
        self._point(LATEST, step)
        remove_tree(replaced)

    def _point(self, pointer: str, step: int | None) -> None:
        path = self.directory / pointer
        if step is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, step_name(step) + "\n")

    def _on_the_way_to(self, written: int) -> list[int]:
        """Steps of checkpoints that lead to the one that is written now.

        Those after the checkpoint that the run went on from do not: it was rewound, or killed before they became the
        latest.
        """
        previous = self.latest_step() or 0
        return [step for step in self.steps() if step < written and step <= previous]

    def _best_of(self, before: Sequence[int], written: Checkpoint) -> int | None:
        """Step of the best by the metric, the first among equals; None when none has it."""
        if not self._best:
            return None
        scores = {one.step: score for one in [*map(self._at, before), written]
                  if (score := one.score(self._best)) is not None}
        return max(scores, key=lambda step: scores[step], default=None)

    def _remove(self, step: int) -> None:
        aside = self.directory / f"{_REMOVED}{step_name(step)}"
        remove_tree(aside)
        with explained(f"cannot remove outdated checkpoint {self.directory / step_name(step)}"):
            os.rename(self.directory / step_name(step), aside)
        remove_tree(aside)


def open_checkpoint(reference: Reference, full: bool = False,
                    otherwise: str = "one is written every checkpoint.every steps and at the end of training") -> Checkpoint:
    """The checkpoint that a user pointed at (`rlinf_cli.runs.naming.locate`), the latest of a run where they named none.

    Raises UsageError when it is damaged (see `Checkpoint.verify`), and when there is none yet; `otherwise` is then added.
    """
    checkpoints = Checkpoints(reference.run / CHECKPOINTS)
    found = checkpoints.latest(full) if reference.step is None else checkpoints.open(reference.step, full)
    if found is None:
        raise UsageError(f"run {reference.run} has no checkpoint yet: {otherwise}")
    return found


def score(state: Mapping[str, Any], metric: str) -> float | None:
    """How good a checkpoint is whose `state` this is: see `Checkpoint.score`."""
    value = state.get("metrics", {}).get(metric.removeprefix("-"))
    return None if value is None else -value if metric.startswith("-") else value


def _text(state: Mapping[str, Any]) -> str:
    return json.dumps(state, indent=2, allow_nan=False) + "\n"


def _seal(directory: Path, step: int) -> None:
    """Add the manifest of a complete directory and wait until all of it is on the disk."""
    files = {name: {"size": (directory / name).stat().st_size, "xxh3_128": _checksum(directory / name)}
             for name in files_below(directory)}
    manifest = json.dumps({"step": step, "files": files}, indent=2)
    (directory / MANIFEST).write_text(manifest + "\n", encoding="utf-8")
    sync_tree(directory)


def _checksum(path: Path) -> str:
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _read_manifest(path: Path) -> dict[str, _Record]:
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["files"]
        return {name: _Record(record["size"], record["xxh3_128"]) for name, record in files.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a manifest") from error


def _problem(path: Path, name: str, record: _Record, full: bool) -> str | None:
    try:
        size = path.stat().st_size
        if size != record.size:
            return f"{name} has {size} bytes instead of {record.size}"
        if (full or size <= _SMALL) and _checksum(path) != record.checksum:
            return f"{name} has other content than was written"
    except OSError as error:
        return f"{name} cannot be read ({reason(error)})"
    return None

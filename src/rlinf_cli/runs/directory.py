"""The directory of a run: what is in it, who may write to it, and the record of its attempts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.files import explained, reason, sync, write_atomically
from rlinf_cli.runs.lock import RunLock
from rlinf_cli.runs.naming import CHECKPOINTS, RECORD, check_name
from rlinf_cli.runs.redact import redact, redact_all, redact_argument

PROFILE = "profile.json"
"""What a run has measured of its own steps."""
_DISTRIBUTIONS = ("rlinf-cli", "torch", "ray", "transformers")
_INTERRUPTED = 130


@dataclass
class Attempt:
    """One process's work on a run. An exception that leaves `RunDirectory.attempt` decides `status` and `reason`."""

    number: int
    logs: Path
    """Directory for the logs of this attempt; exists."""
    status: str = "finished"
    """`finished`, `failed` or `interrupted`."""
    reason: str = "finished"


class RunDirectory:
    """Paths of a run's files and its record `run.json`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.plan = path / "plan.yaml"
        self.profile = path / PROFILE
        self.metrics = path / "metrics.jsonl"
        self.samples = path / "samples.jsonl"
        self.eval_samples = path / "eval_samples.jsonl"
        self.trace = path / "trace.json"
        self.incidents = path / "incidents.jsonl"
        self.events = path / "events.jsonl"
        self.checkpoints = path / CHECKPOINTS
        self._lock: RunLock | None = None

    @classmethod
    def create(cls, root: Path, name: str, overwrite: bool, config_yaml: str, info: Mapping[str, Any],
               unique: bool = False) -> RunDirectory:
        """Make `root/name` for this process alone, with `config.yaml` and `run.json` (`info` is added to the record).

        With `unique` a taken name gets a suffix (`-2`, `-3`, ...). Raises UsageError when the name is taken, unless it
        is that of a run, idle, and `overwrite` is given: that run is then removed. Secrets of the environment are
        replaced by references to it.
        """
        check_name(name)
        with explained(f"cannot make run directory {root / name}", UsageError):
            root.mkdir(parents=True, exist_ok=True)
            if overwrite:
                _remove_run(root / name)
            run = cls(_make_directory(root, name, unique))
            try:
                run._lock = RunLock(run.path)
                run.write_config(config_yaml)
                run._write_record({"name": run.path.name, "created": _now(), "status": "created", **redact_all(info),
                                   "attempts": []})
            except BaseException:
                shutil.rmtree(run.path, ignore_errors=True)
                raise
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """A run that exists; takes no lock. Raises UsageError when `path` holds no run."""
        run = cls(path)
        run.info()
        return run

    def info(self) -> dict[str, Any]:
        """The content of `run.json`."""
        record = self.path / RECORD
        try:
            found = json.loads(record.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(f"{self.path} is not a run directory (it has no {RECORD})") from None
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read {record}: {reason(error)}") from error
        if not isinstance(found, dict) or not isinstance(found.get("attempts"), list):
            raise UsageError(f"{record} is not the record of a run: it has no list of attempts")
        return found

    @property
    def logs(self) -> Path:
        """Directory for the logs of the latest attempt."""
        return self._logs_of(len(self.info()["attempts"]))

    def write_config(self, text: str) -> None:
        """The resolved configuration; a resume may have changed it. Secrets of the environment become references."""
        write_atomically(self.config, redact(text))

    def write_plan(self, text: str) -> None:
        write_atomically(self.plan, text)

    @contextlib.contextmanager
    def attempt(self, command: Sequence[str]) -> Iterator[Attempt]:
        """Hold the run for this process and record begin, end and outcome of what is done inside.

        `command` is the command line; values of keys named like secrets are hidden. An attempt that left no end was
        killed, and is recorded as such by the next one. Raises UsageError when another process has the run.
        """
        try:
            with explained(f"cannot write to run directory {self.path}", UsageError):
                if self._lock is None:
                    self._lock = RunLock(self.path)
                attempt = self._begin(command)
            with self._recorded(attempt):
                yield attempt
        finally:
            self.close()

    @contextlib.contextmanager
    def _recorded(self, attempt: Attempt) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            attempt.status, attempt.reason = outcome_of(error)
            # what ended the run matters more than that its end could not be recorded
            with contextlib.suppress(OSError, UsageError):
                self._end(attempt)
            raise
        with explained(f"cannot write {self.path / RECORD}"):
            self._end(attempt)

    def close(self) -> None:
        """Let other processes have the run. Idempotent."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _logs_of(self, attempt: int) -> Path:
        return self.path / "logs" / f"attempt_{attempt}"

    def _begin(self, command: Sequence[str]) -> Attempt:
        record = self.info()
        attempts = record["attempts"]
        if attempts and attempts[-1]["end"] is None:
            attempts[-1]["exit"] = "killed, or the machine went down"
        attempts.append({"number": len(attempts) + 1, "start": _now(), "end": None, "exit": None,
                         "command": [redact_argument(argument) for argument in command],
                         "host": socket.gethostname(), "process": os.getpid(), "versions": _versions()})
        attempt = Attempt(len(attempts), self._logs_of(len(attempts)))
        attempt.logs.mkdir(parents=True, exist_ok=True)
        self._write_record(record | {"status": "running"})
        return attempt

    def _end(self, attempt: Attempt) -> None:
        record = self.info()
        record["status"] = attempt.status
        record["attempts"][-1] |= {"end": _now(), "exit": redact(attempt.reason)}
        self._write_record(record)

    def _write_record(self, record: Mapping[str, Any]) -> None:
        write_atomically(self.path / RECORD, json.dumps(record, indent=2) + "\n")


def _make_directory(root: Path, name: str, unique: bool) -> Path:
    for number in count(1):
        path = root / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            if not unique:
                raise UsageError(_taken(path)) from None
        else:
            sync(root)
            return path
    raise AssertionError("count() does not end")


def _taken(path: Path) -> str:
    if (path / RECORD).is_file():
        return (f"run directory {path} exists: continue it with --resume {path}, replace it with --overwrite, "
                "or choose another --name")
    kind = "directory" if path.is_dir() else "file"
    return f"{path} exists and is not a run: choose another --name, or remove that {kind} yourself"


def _remove_run(path: Path) -> None:
    if not os.path.lexists(path):
        return
    if path.is_symlink() or not (path / RECORD).is_file():
        raise UsageError(_taken(path))
    lock = RunLock(path)
    try:
        aside = path.with_name(f".{path.name}.removed-{os.getpid()}")
        path.rename(aside)
        shutil.rmtree(aside)
    finally:
        lock.release()


def outcome_of(error: BaseException) -> tuple[str, str]:
    """Status and reason of an attempt that this exception ended."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "interrupted"
    status = "interrupted" if getattr(error, "exit_code", None) == _INTERRUPTED else "failed"
    return status, str(error) or type(error).__name__


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _versions() -> dict[str, str | None]:
    return {name: _version(name) for name in _DISTRIBUTIONS}


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None

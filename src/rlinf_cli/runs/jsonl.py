"""Files of one JSON object a line, each with its `step`, that survive a crash and can be continued from a step."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.files import explained

_CHUNK = 8 << 20


class StepLines:
    """Appends lines to `path`. Those of steps beyond `after`, and a last line that a crash has torn, are cut off first.

    Each batch of lines goes to the system in one call, so a killed process tears none. Usable in a `with` statement.
    """

    def __init__(self, path: Path, after: int) -> None:
        self._path, self._last = path, after
        with explained(f"cannot write {path}"):
            if path.exists():
                os.truncate(path, _end_of(path, after))
            self._file = path.open("ab", buffering=0)

    def __enter__(self) -> StepLines:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    def write(self, step: int, lines: Iterable[Mapping[str, Any]]) -> None:
        """Append lines of one step. Raises ValueError when an earlier call had a later step, RunError when the disk
        refuses."""
        if step < self._last:
            raise ValueError(f"step {step} comes after step {self._last} in {self._path}")
        self._last = step
        data = b"".join(_encode({"step": step, **line}) for line in lines)
        with explained(f"cannot write {self._path}"):
            self._append(data)

    def close(self) -> None:
        self._file.close()

    def _append(self, data: bytes) -> None:
        found = os.fstat(self._file.fileno())
        if not found.st_nlink:
            raise FileNotFoundError(errno.ENOENT, "the file was removed", str(self._path))
        end = found.st_size
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(end)
            raise


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of such a file, oldest first; a torn last line is left out, since the run may be writing it.

    Raises UsageError naming the line that is damaged.
    """
    for _, line in _lines(path):
        yield line


def copy_lines(source: Path, target: Path, last: int) -> None:
    """Begin a new file with the lines of another one up to those of step `last`. Raises UsageError as `read_lines`."""
    if not source.exists():
        return
    with open(source, "rb") as file, open(target, "xb") as copy:
        left = _end_of(source, last)
        while left and (data := file.read(min(left, _CHUNK))):
            copy.write(data)
            left -= len(data)


def finite_or_none(value: float) -> float | None:
    """JSON has no word for NaN and infinity; both become null."""
    number = float(value)
    return number if math.isfinite(number) else None


def _encode(line: Mapping[str, Any]) -> bytes:
    # data may hold lone surrogates, which UTF-8 has no bytes for; backslashreplace makes the JSON escape of them
    return (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line with the position of its end in the file (bytes)."""
    try:
        with open(path, "rb") as file:
            end, damaged = 0, None
            for number, raw in enumerate(file, 1):
                if damaged is not None:
                    raise UsageError(f"line {damaged} of {path} is damaged: restore the file, or remove that line")
                end += len(raw)
                line = _parse(raw)
                if line is None:
                    damaged = number
                else:
                    yield end, line
    except FileNotFoundError:
        return


def _parse(raw: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(raw) if raw.endswith(b"\n") else None
    except ValueError:
        return None
    return line if isinstance(line, dict) and isinstance(line.get("step"), int) else None


def _end_of(path: Path, after: int) -> int:
    """Bytes up to the end of the last line whose step is at most `after`."""
    end = 0
    for position, line in _lines(path):
        if line["step"] > after:
            break
        end = position
    return end

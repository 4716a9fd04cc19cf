"""JSON Lines files: one JSON object a line, checked whole when opened, parsed row by row when read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlinf_cli.data.layouts import Layout, LayoutError, recognise
from rlinf_cli.data.rows import Row
from rlinf_cli.errors import UsageError, did_you_mean

ENDINGS = (".jsonl", ".ndjson")
"""File name endings that are read."""

_BOM = b"\xef\xbb\xbf"


class JsonlDataset:
    """The rows of a JSON Lines file; layouts as described in `docs/data.md`.

    Every line is checked once, here: UsageError names the file, the line and what is wrong. Only positions are kept
    (24 bytes a row), so the file may be larger than memory; it must not change while it is in use.
    """

    size: int | None

    def __init__(self, path: str | Path, prompt_key: str = "", answer_key: str = "") -> None:
        self.path = str(path)
        _check_file(Path(path))
        self._starts, self._lengths, self._lines = array("q"), array("q"), array("q")
        self._layout: Layout | None = None
        for line, start, text in self._read():
            record = _parse(text, start, f"{self.path}, line {line}")
            if self._layout is None:
                self._layout = self._recognise(record, line, prompt_key, answer_key)
            self._row(record, line)
            self._starts.append(start)
            self._lengths.append(len(text))
            self._lines.append(line)
        self.size = len(self._starts)
        if not self.size:
            raise UsageError(f"{self.path} holds no rows; write one JSON object a line")

    def row(self, index: int) -> Row:
        """Row number `index`, blank lines not counted; UsageError when the file has changed and no longer fits."""
        line = self._lines[index]
        with open(self.path, "rb") as file:
            file.seek(self._starts[index])
            text = file.read(self._lengths[index])
        return self._row(_parse(text, self._starts[index], f"{self.path}, line {line}"), line)

    def _read(self) -> Iterator[tuple[int, int, bytes]]:
        """Line number, byte position and content of each line that is not blank."""
        try:
            with open(self.path, "rb") as file:
                start = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
                file.seek(start)
                for line, text in enumerate(file, 1):
                    if not text.isspace():
                        yield line, start, text
                    start += len(text)
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror}") from error

    def _recognise(self, record: dict[str, Any], line: int, prompt_key: str, answer_key: str) -> Layout:
        try:
            return recognise(record, prompt_key, answer_key)
        except LayoutError as error:
            raise UsageError(f"{self.path}, line {line}: {error}") from error

    def _row(self, record: dict[str, Any], line: int) -> Row:
        assert self._layout is not None
        try:
            return self._layout.row(record)
        except LayoutError as error:
            raise UsageError(f"{self.path}, line {line}: {error}") from error


def _parse(text: bytes, start: int, where: str) -> dict[str, Any]:
    try:
        record = json.loads(text.decode().rstrip())
    except UnicodeDecodeError as error:
        raise UsageError(f"{where}: not UTF-8 at byte {start + error.start} of the file; convert it") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{where}, column {error.colno}: not valid JSON ({error.msg}); "
                         "each line must hold one JSON object") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: cannot be read as JSON ({error})") from error
    if not isinstance(record, dict):
        raise UsageError(f"{where}: expected a JSON object, found {text.decode().strip()[:40]!r}")
    if b"\\ud" in text.lower():
        _check_surrogates(record, where)
    return record


def _check_surrogates(record: dict[str, Any], where: str) -> None:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        code = ord(error.object[error.start])
        raise UsageError(f"{where}: the escape \\u{code:04x} is half of a character; write both halves") from error


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name a file in it{_list(path)}")
    if not path.exists():
        raise UsageError(f"no file {path}{_advice(path)}")
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"cannot read {path}: data is read from {' or '.join(ENDINGS)} files, one JSON object a line; "
                         "convert it, for example with pandas: to_json(FILE, orient='records', lines=True)")
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file")
    if not path.stat().st_size:
        raise UsageError(f"{path} is empty; write one JSON object a line")


def _advice(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no directory {path.parent}"
    return did_you_mean(path.name, (entry.name for entry in path.parent.iterdir()))


def _list(directory: Path) -> str:
    names = sorted(entry.name for entry in directory.iterdir() if entry.suffix.lower() in ENDINGS)
    return f": {', '.join(names[:5])}" if names else ""

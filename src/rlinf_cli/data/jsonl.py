"""JSON Lines files: one JSON object a line, checked whole when opened, parsed row by row when read."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlinf_cli.data.digest import file_digest
from rlinf_cli.data.layouts import RECOGNISED, Reading
from rlinf_cli.data.records import RecordReader
from rlinf_cli.data.rows import Row
from rlinf_cli.errors import UsageError

_BOM = b"\xef\xbb\xbf"


class JsonlDataset:
    """The rows of a JSON Lines file; layouts as described in `docs/data.md`.

    Every line is checked once, here: UsageError names the file, the line and what is wrong. Only positions are kept
    (24 bytes a row), so the file may be larger than memory; it must not change while it is in use.
    """

    size: int | None

    def __init__(self, path: Path, reading: Reading = RECOGNISED) -> None:
        self.path = str(path)
        self._starts, self._lengths, self._lines = array("q"), array("q"), array("q")
        self._reader = RecordReader(reading)
        for line, start, text in self._read():
            where = f"{self.path}, line {line}"
            self._reader.row(_parse(text, start, where), where)
            self._starts.append(start)
            self._lengths.append(len(text))
            self._lines.append(line)
        self.size = len(self._starts)
        if not self.size:
            raise UsageError(f"{self.path} holds no rows; write one JSON object a line")

    def row(self, index: int) -> Row:
        """Row number `index`, blank lines not counted; UsageError when the file has changed and no longer fits."""
        with open(self.path, "rb") as file:
            file.seek(self._starts[index])
            text = file.read(self._lengths[index])
        where = self.where(index)
        return self._reader.row(_parse(text, self._starts[index], where), where)

    def where(self, index: int) -> str:
        return f"{self.path}, line {self._lines[index]}"

    def fingerprint(self) -> str:
        return file_digest(self.path)

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

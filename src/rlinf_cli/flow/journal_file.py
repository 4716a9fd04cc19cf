"""The controller's journal as a file: what its machines were told and answered, see `rlinf_cli.state.journal`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rlinf_cli.state.journal import Record, encode, read

_BUFFER = 1024 * 1024


class JournalFile:
    """Written from the beginning; lines reach the file in large pieces, the last with `close`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8", buffering=_BUFFER)

    def write(self, record: Record) -> None:
        self._file.write(encode(record))

    def close(self) -> None:
        self._file.close()


def read_journal(path: Path) -> Iterator[Record]:
    """The records of a file; one that was cut off by the end of its writer is skipped."""
    with path.open(encoding="utf-8") as lines:
        yield from read(lines)

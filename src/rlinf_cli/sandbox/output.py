"""What a process prints, to a log that it must not fill."""

from __future__ import annotations

import os

MOST = 1_000_000
"""Bytes that are written in all."""


class CappedLog:
    """Writes to a descriptor until `most` bytes are there; then one line, and nothing more."""

    def __init__(self, descriptor: int, what: str, most: int = MOST) -> None:
        self._descriptor, self._what = descriptor, what
        self._most = self._left = most

    def write(self, content: bytes) -> None:
        if self._left <= 0:
            return
        _write(self._descriptor, content[: self._left])
        self._left -= len(content)
        if self._left <= 0:
            _write(self._descriptor, f"\n{self._what} has printed {self._most:,} bytes; the rest is dropped\n".encode())


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]

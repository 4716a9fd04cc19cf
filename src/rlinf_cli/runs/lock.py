"""One process in a run directory at a time."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.files import reason

LOCK = ".lock"


class RunLock:
    """Held from construction to `release`, or to the end of the process, however it ends: the system lets go of it.

    Of the kinds of locks the system has, this one is not inherited by child processes, so that none can keep it after
    a kill. Raises UsageError when another process holds it.
    """

    def __init__(self, directory: Path) -> None:
        self._descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._descriptor, 200, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise UsageError(_explain(directory, error, holder)) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def holder(directory: Path) -> int | None:
    """The process that holds the run's lock (0 when it is on another machine); None when nobody does. Takes no lock."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        asked = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(descriptor)
    kind, _, _, _, process = struct.unpack(_FLOCK, asked)
    return None if kind == fcntl.F_UNLCK else max(0, process)


_FLOCK = "hhlli"
"""The system's `struct flock`: kind, origin, start, length, process."""


def _explain(directory: Path, error: OSError, holder: str) -> str:
    if isinstance(error, (BlockingIOError, PermissionError)):
        return (f"run directory {directory} is in use by {holder or 'another process'}: wait for it to end, "
                "or choose another --name")
    return f"cannot lock run directory {directory}: {reason(error)}; choose another place"

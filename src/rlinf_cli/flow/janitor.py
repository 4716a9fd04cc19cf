"""Clears up after a driver that could not do it itself, because it was killed.

`Janitor` starts this file as a process of its own that waits for the driver's end, and then ends every process that
bears the cluster's mark in its environment and removes the given directories. The standard library is all it needs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

MARK = "RLINF_CLUSTER"
"""Environment variable of every process of a cluster."""
_GRACE_S = 1.0
_PATIENCE_S = 5.0


class Janitor:
    """Started before what it is to clear up. Its pipe closes with the driver's end, however that comes."""

    def __init__(self, mark: str, directories: Sequence[str]) -> None:
        self._mark, self._directories = mark, directories
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, mark, *directories], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def finish(self) -> None:
        """Clear up what an orderly shutdown has left over, here, and end the process."""
        clear(self._mark, self._directories)
        self._process.communicate(b"done")


def clear(mark: str, directories: Sequence[str]) -> None:
    """Kill the processes with this mark, and remove the directories."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := list(marked(mark))) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for directory in directories:
        shutil.rmtree(directory, ignore_errors=True)


def marked(mark: str) -> Iterator[int]:
    """The processes, but for zombies and this one, whose environment has the mark."""
    wanted = f"{MARK}={mark}".encode()
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and wanted in _environment(entry):
            yield int(entry)


def _environment(pid: str) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:  # gone, or somebody else's
        return []


def main() -> None:
    mark, *directories = sys.argv[1:]
    if not sys.stdin.buffer.read(1):
        time.sleep(_GRACE_S)  # most end by themselves, and in good order
        clear(mark, directories)


if __name__ == "__main__":
    main()

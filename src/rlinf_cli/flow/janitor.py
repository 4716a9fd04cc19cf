"""Clears up after a driver that could not do it itself, because it was killed.

`Janitor` starts this file as a process of its own that waits for the driver's end, and then ends every process of the
cluster and removes the given directories. The standard library is all it needs.

A process is the cluster's when its environment bears the cluster's mark, or when it has a file open in Ray's directory:
Ray's Python processes write their title over the environment that the kernel shows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

MARK = "RLINF_CLUSTER"
"""Environment variable of every process of a cluster."""
_GRACE_S = 1.0
_PATIENCE_S = 5.0


class Janitor:
    """Started before what it is to clear up. Its pipe closes with the driver's end, however that comes.

    `home`: Ray's directory · `others`: directories to remove with it.
    """

    def __init__(self, mark: str, home: str, *others: str) -> None:
        self._cluster = (mark, home, *others)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *self._cluster], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def finish(self) -> None:
        """Clear up what an orderly shutdown has left over, here, and end the process."""
        clear(*self._cluster)
        self._process.communicate(b"done")


def clear(mark: str, home: str, *others: str) -> None:
    """Kill the cluster's processes, and remove the directories."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := list(members(mark, home))) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    for directory in (home, *others):
        shutil.rmtree(directory, ignore_errors=True)


def members(mark: str, home: str) -> Iterator[int]:
    """The cluster's processes, but for zombies and this one."""
    wanted, below = f"{MARK}={mark}".encode(), os.path.join(home, "")
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):  # gone, or somebody else's
                if wanted in _environment(entry) or any(path.startswith(below) for path in _open_files(entry)):
                    yield int(entry)


def _environment(pid: str) -> list[bytes]:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read().split(b"\0")


def _open_files(pid: str) -> Iterator[str]:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to all of a run: the driver may still save
    if not sys.stdin.buffer.read(1):
        time.sleep(_GRACE_S)  # most end by themselves, and in good order
        clear(*sys.argv[1:])


if __name__ == "__main__":
    main()

"""How a process of this machine ended, which its parent alone would be told otherwise (Linux 6.15 and later)."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import time

_GET_INFO = 0xC040FF0B
"""ioctl PIDFD_GET_INFO with the first version of `struct pidfd_info`, 64 bytes."""
_EXIT = 1 << 3
_EXIT_CODE_OFFSET = 60
_PATIENCE_S = 0.3


class Exit:
    """Make it while the process lives; ask `reason()` after its death."""

    def __init__(self, pid: int) -> None:
        try:
            self._fd = os.pidfd_open(pid) if pid else -1
        except OSError:  # ended before, or no such system call
            self._fd = -1

    def reason(self) -> str:
        """`signal 9: Killed`, `exit code 1`; empty when the system does not tell."""
        deadline = time.monotonic() + _PATIENCE_S
        while self._fd >= 0:
            info = bytearray(struct.pack("<Q56x", _EXIT))
            try:
                fcntl.ioctl(self._fd, _GET_INFO, info)
            except OSError:
                return ""
            if struct.unpack_from("<Q", info)[0] & _EXIT:
                return describe(struct.unpack_from("<i", info, _EXIT_CODE_OFFSET)[0])
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        return ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


NOWHERE = Exit(0)
"""Of a process that cannot be looked at, being on another machine."""


def describe(status: int) -> str:
    """A wait status in words."""
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}: {signal.strsignal(os.WTERMSIG(status))}"
    return f"exit code {os.WEXITSTATUS(status)}"

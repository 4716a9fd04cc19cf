"""A program under a keeper, as the process sees it that asked for it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import IO, Any

from rlinf_cli.sandbox import keeper
from rlinf_cli.sandbox.keeper import Ended, Order

_PATIENCE_S = 10.0

Stream = int | IO[Any] | None


class Kept:
    """A program that leaves nothing behind. `control` can be read when it has ended; not safe to use from two threads."""

    def __init__(self, command: Sequence[str], *, keep: Sequence[int] = (), isolate: bool = False,
                 limits: Mapping[str, int] | None = None, processes: int = 0, remove: str = "",
                 env: Mapping[str, str] | None = None, cwd: str | None = None, stdin: Stream = subprocess.DEVNULL,
                 stdout: Stream = subprocess.DEVNULL, stderr: Stream = subprocess.DEVNULL) -> None:
        order = Order(command=list(command), keep=list(keep), isolate=isolate, limits=dict(limits or {}),
                      processes=processes, remove=remove)
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno()), json.dumps(order)], env=env, cwd=cwd,
                stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=(theirs.fileno(), *keep), start_new_session=True)

    def wait(self, seconds: float) -> bool:
        """Whether it has ended within so many seconds."""
        self.control.settimeout(seconds)
        try:
            return self.control.recv(1, socket.MSG_PEEK) is not None
        except OSError:
            return False

    def end(self) -> Ended:
        """Kill what is left of it, which may be nothing, and say how it had ended before."""
        with contextlib.suppress(OSError):  # it is gone
            self.control.shutdown(socket.SHUT_WR)
        self.control.settimeout(_PATIENCE_S)
        said = b""
        with contextlib.suppress(OSError):
            while part := self.control.recv(4096):
                said += part
        self.control.close()
        self._bury()
        ended: Ended = json.loads(said) if said else {}
        return ended

    def _bury(self) -> None:
        """The keeper itself, which ends by itself unless it waits for a process that even SIGKILL does not end."""
        try:
            self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def manner(ended: Ended) -> str:
    """How a program ended, in words: `exit code 3`, `signal 11: Segmentation fault`; empty when it was ended."""
    if "status" not in ended:
        return ended.get("error", "")
    code = os.waitstatus_to_exitcode(ended["status"])
    return f"exit code {code}" if code >= 0 else f"signal {-code}: {signal.strsignal(-code)}"

"""Starts a program, and sees to it that nothing of it is left: neither when it ends, nor when it is told to end it, nor
when the one who asked for it is gone.

It is a process of its own, this file run as a script: the program's processes that lose their parent become its children
(it is their "subreaper"), so that none escapes, and it is single-threaded and small, so that it always answers. It is
told the order as JSON (`Order`), and talks over a socket: when nothing more can come from there it ends everything; its
last word is how the program ended (`Ended`). The standard library is all it needs.

In namespaces of its own (`isolate`) the program has no network, sees no process but its own and can read the
environment of none; the kernel then ends all of it with the first process.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypedDict

_SET_PARENT_DEATH_SIGNAL, _SET_SUBREAPER, _SET_NO_NEW_PRIVILEGES = 1, 36, 38
_NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
_WATCH_S = 0.05
_PATIENCE_S = 5.0
_UNTOUCHABLE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
"""The program may send these to its parent."""


class Order(TypedDict):
    """What to start."""

    command: list[str]
    keep: list[int]
    """Descriptors that the program gets, beside the standard streams."""
    isolate: bool
    limits: dict[str, int]
    """Names of the module `resource` (`RLIMIT_CPU`) and their values."""
    processes: int
    """Most processes at a time; 0: any number."""
    remove: str
    """A directory that goes with the program; empty: none."""


class Ended(TypedDict, total=False):
    """How it ended: one of these; nothing when it was told to end it."""

    status: int
    """A wait status."""
    crowd: int
    """It had so many processes, and was ended."""
    error: str
    """Why it could not be started."""


class Keeper:
    """One program, from its start to the end of its last process."""

    def __init__(self, control: socket.socket, order: Order) -> None:
        self._control, self._order = control, order
        self._told = os.pipe()
        """Where the first process in a namespace tells how the program ended."""
        self._status: int | None = None
        self._program = 0

    def run(self) -> Ended:
        call("prctl", _SET_SUBREAPER, 1)
        awake = _wakeups()
        if self._order["isolate"]:
            enter_namespaces()
        self._program = _fork(self._first if self._order["isolate"] else self._become)
        os.close(self._told[1])
        _let_go((0, 1, 2, *self._order["keep"]))
        crowd = self._watch(awake)
        self._end_all()
        if crowd:
            return {"crowd": crowd}
        return {} if self._status is None else {"status": self._status}

    def _watch(self, awake: int) -> int:
        """Until the program has ended, or is to be. How many processes it had, if that is too many."""
        limit, poll = self._order["processes"], select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(awake, select.POLLIN)
        while self._status is None:
            ready = [fd for fd, _ in poll.poll(_WATCH_S * 1000 if limit else None)]
            if self._control.fileno() in ready:
                break
            if awake in ready:
                os.read(awake, 4096)
                self._reap()
            if limit and (count := sum(1 for _ in descendants(os.getpid()))) > limit + self._order["isolate"]:
                return count
        return 0

    def _reap(self) -> bool:
        """Take leave of the children that have ended; whether there are others."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._program:
                    told = os.read(self._told[0], 4) if self._order["isolate"] else b""
                    self._status = struct.unpack("i", told)[0] if told else ended[1]
            return True
        return False

    def _end_all(self) -> None:
        deadline, status = time.monotonic() + _PATIENCE_S, self._status
        while self._reap() and time.monotonic() < deadline:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)
        self._status = status
        remove(self._order["remove"])

    def _first(self) -> None:
        """Process 1 of the namespace: signals would not reach the program there as they should."""
        self._control.close()
        call("prctl", _SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        program = _fork(self._become)
        _let_go((0, 1, 2, *self._order["keep"]))
        while (ended := os.wait())[0] != program:
            pass
        os.write(self._told[1], struct.pack("i", ended[1]))

    def _become(self) -> None:
        """The program, in this process."""
        os.setsid()
        call("prctl", _SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        call("prctl", _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        for name, value in self._order["limits"].items():
            kind = getattr(resource, name)
            most = resource.getrlimit(kind)[1]
            bound = value if most == resource.RLIM_INFINITY else min(value, most)
            resource.setrlimit(kind, (bound, bound))
        for number in (*_UNTOUCHABLE, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self._control.close()
        os.execvp(self._order["command"][0], self._order["command"])


def _fork(body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        body()
        os._exit(0)
    except BaseException as error:  # whatever it is, this copy of the keeper must not go on
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(127)


def _wakeups() -> int:
    """A descriptor that can be read when a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _UNTOUCHABLE:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def _let_go(descriptors: Iterable[int]) -> None:
    """They are the program's alone: their other ends see when it closes them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in descriptors:
        os.dup2(nothing, fd)
    os.close(nothing)


def enter_namespaces() -> None:
    """This process: a new user namespace; its children: no network, and no processes but their own. Raises OSError where
    the system forbids it."""
    user, group = os.getuid(), os.getgid()
    call("unshare", _NEW_USER | _NEW_PID | _NEW_NET | _NEW_IPC)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def remove(directory: str) -> None:
    """With all that is in it. What cannot be removed stays."""
    for place, directories, files in os.walk(directory, topdown=False) if directory else ():
        for name in files + directories:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                (os.rmdir if name in directories and not os.path.islink(path) else os.unlink)(path)
    if directory:
        with contextlib.suppress(OSError):
            os.rmdir(directory)


def descendants(pid: int) -> Iterator[int]:
    """The processes below `pid`, also those that have ended and wait for their parent."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):  # gone
                children.setdefault(_parent(entry), []).append(int(entry))
    waiting = children.pop(pid, [])
    while waiting:
        one = waiting.pop()
        waiting += children.pop(one, [])
        yield one


def _parent(pid: str) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def call(name: str, *arguments: int) -> None:
    """A function of the C library that returns 0. Raises OSError as it fails."""
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*(ctypes.c_ulong(argument) for argument in arguments)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def main() -> None:
    control, order = socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2])
    ended: Any
    try:
        ended = Keeper(control, order).run()
    except OSError as error:
        ended = {"error": str(error)}
    with contextlib.suppress(OSError):  # nobody is there any more
        control.sendall(json.dumps(ended).encode())


if __name__ == "__main__":
    main()

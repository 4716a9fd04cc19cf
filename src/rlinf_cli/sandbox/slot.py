"""One process of a pool, and its connection: bytes in and out, without ever waiting for it."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.sandbox.child import LENGTH, Answer
from rlinf_cli.sandbox.kept import Kept, manner

_BLOCK = 1 << 16
_START = ("import sys; sys.path[:] = sys.argv[2:]; "
          "from rlinf_cli.sandbox.child import serve; serve(int(sys.argv[1]))")


@dataclass
class Task:
    """A payload under way."""

    key: Any
    payload: bytes
    values: list[Any] = field(default_factory=list)
    """What the functions have given, as far as they have."""


class Slot:
    """A fresh process that has been told what to make."""

    def __init__(self, make: bytes, env: Mapping[str, str] | None, now: float) -> None:
        self.connection, theirs = socket.socketpair()
        self.printed, printing = os.pipe()
        try:
            self.kept = Kept([sys.executable, "-c", _START, str(theirs.fileno()), *sys.path], keep=[theirs.fileno()],
                             env=env, stdout=printing, stderr=subprocess.STDOUT)
        finally:
            theirs.close()
            os.close(printing)
        self.connection.setblocking(False)
        os.set_blocking(self.printed, False)
        self.tasks: deque[Task] = deque()
        """Sent and not answered in full; the process is at the first of them."""
        self.functions = 0
        """How many there are; 0 until they are made."""
        self.since = self.began = now
        """When the call began that it is at, and when the task did."""
        self.pace = 0.01
        """Seconds that a task takes, a moving average."""
        self.window = 1
        """Tasks that it may have at a time: enough to keep it busy, few enough to leave work for others."""
        self._incoming, self._outgoing = bytearray(), bytearray()
        self._post(make)

    @property
    def writes(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._outgoing)

    def give(self, task: Task, now: float) -> None:
        if not self.tasks:
            self.since = self.began = now
        self.tasks.append(task)
        self._post(task.payload)

    def _post(self, content: bytes) -> None:
        self._outgoing += LENGTH.pack(len(content)) + content
        self.send()

    def send(self) -> None:
        """As much as the connection takes."""
        try:
            while self._outgoing:
                del self._outgoing[: self.connection.send(self._outgoing)]
        except BlockingIOError:
            return
        except OSError:  # it is gone, which is seen elsewhere
            self._outgoing.clear()

    def receive(self) -> tuple[list[Answer], bool]:
        """What has been answered, and whether more can come."""
        is_open = True
        try:
            while content := self.connection.recv(_BLOCK):
                self._incoming += content
            is_open = False
        except BlockingIOError:
            pass
        except OSError:
            is_open = False
        answers: list[Answer] = []
        try:
            answers.extend(self._answers())
        except Exception:  # something else than an answer, written by a function that found the descriptor
            is_open = False
        return answers, is_open

    def _answers(self) -> Iterator[Answer]:
        place = 0
        while len(self._incoming) - place >= LENGTH.size:
            end = place + LENGTH.size + LENGTH.unpack_from(self._incoming, place)[0]
            if end > len(self._incoming):
                break
            yield pickle.loads(memoryview(self._incoming)[place + LENGTH.size : end])
            place = end
        del self._incoming[:place]

    def read_printed(self) -> bytes:
        try:
            return os.read(self.printed, _BLOCK)
        except BlockingIOError:
            return b""

    def end(self, patience: float = 0.0) -> str:
        """Kill the process and all that it started; how it had ended by itself, if it had or does in so many seconds."""
        self.kept.wait(patience)
        told = manner(self.kept.end())
        self.connection.close()
        os.close(self.printed)
        return told

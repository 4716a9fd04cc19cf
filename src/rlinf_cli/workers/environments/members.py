"""Those who step the instances of a pool: the process that asks, or others that it starts."""

from __future__ import annotations

import os
import pickle
import select
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.environment import Start
from rlinf_cli.errors import RunError
from rlinf_cli.sandbox.kept import Kept, manner
from rlinf_cli.workers.environments.buffers import Buffers
from rlinf_cli.workers.environments.line import DONE, LAYOUT, RAISED, READY, RENDER, RESET, STEP, Line, Message
from rlinf_cli.workers.environments.order import Layout, Order, fps_of, make_shares, spaces_of

_START = ("import sys; sys.path[:] = sys.argv[2:]; "
          "from rlinf_cli.workers.environments.child import serve; serve(int(sys.argv[1]))")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_STDERR = 2
"""Of this process: what simulators print goes there."""

Frames = Sequence[NDArray[np.uint8]]


class Lost(RunError):
    """A process is gone, with the episodes of all its instances."""


class Member(Protocol):
    """Steps the same rows of every half. `step` and `reset` begin; `finish` waits, and tells whether success is known."""

    spaces: tuple[Any, Any]
    """Of observations and of actions, of one instance."""
    fps: float
    """Steps that a second of what is simulated has, to show it at its own speed."""

    def use(self, halves: Sequence[Buffers], layout: Layout, memory: int) -> None: ...
    def reset(self, half: int, starts: Sequence[Start]) -> None: ...
    def step(self, half: int, starts: Mapping[int, Start]) -> None: ...
    def finish(self, half: int) -> bool: ...
    def render(self, half: int) -> Frames: ...
    def close(self) -> None: ...


class Here:
    """In the process that asks."""

    def __init__(self, order: Order) -> None:
        self._shares = make_shares(order)
        one = self._shares[0].environment
        self.spaces, self.fps = spaces_of(one), fps_of(one)

    def use(self, halves: Sequence[Buffers], layout: Layout, memory: int) -> None:
        for share, whole in zip(self._shares, halves, strict=True):
            share.use(whole.rows(layout.rows))

    def reset(self, half: int, starts: Sequence[Start]) -> None:
        self._shares[half].reset(starts)

    def step(self, half: int, starts: Mapping[int, Start]) -> None:
        self._shares[half].expect(starts)
        self._shares[half].step()

    def finish(self, half: int) -> bool:
        return self._shares[half].tells_success

    def render(self, half: int) -> Frames:
        frames: Any = self._shares[half].environment.render()
        return tuple(frames)

    def close(self) -> None:
        for share in self._shares:
            share.environment.close()


class Elsewhere:
    """In a process of its own. Whatever happens to it or to this one, nothing of it is left: see `rlinf_cli.sandbox.keeper`.

    `finish` and `render` raise Lost when it is gone or has not answered for `patience` seconds, and an RlinfError when the
    simulator raised.
    """

    def __init__(self, order: Order, patience: float) -> None:
        self._patience = patience
        connection, theirs = socket.socketpair()
        with theirs:
            self._kept = Kept([sys.executable, "-c", _START, str(theirs.fileno()), *sys.path], keep=[theirs.fileno()],
                              env={**os.environ, **_ONE_THREAD}, stdout=_STDERR, stderr=_STDERR)
        self._line = Line(connection)
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)
        self._answers: dict[int, bytes] = {}
        """Half -> an answer that came while another one was waited for."""
        self._is_open = True
        self._send(READY, 0, pickle.dumps(order))

    def meet(self) -> None:
        """Wait until its instances are made. Raises Lost, or as the simulator raises, when they cannot be."""
        message = self._message()
        assert message.kind == READY
        self.pid, self.spaces, self.fps = pickle.loads(message.content)

    def use(self, halves: Sequence[Buffers], layout: Layout, memory: int) -> None:
        self._send(LAYOUT, 0, pickle.dumps(layout))
        try:
            self._line.send_memory(memory)
        except OSError:  # it is gone, as the next answer tells
            return
        self.finish(0)

    def reset(self, half: int, starts: Sequence[Start]) -> None:
        self._send(RESET, half, pickle.dumps(list(starts)))

    def step(self, half: int, starts: Mapping[int, Start]) -> None:
        self._send(STEP, half, pickle.dumps(dict(starts)) if starts else b"")

    def finish(self, half: int) -> bool:
        return bool(self._answer(half))

    def render(self, half: int) -> Frames:
        self._send(RENDER, half)
        frames: Frames = pickle.loads(self._answer(half))
        return frames

    def close(self) -> None:
        """Kill it and all that it started."""
        self._end()
        self._line.connection.close()

    def _end(self) -> str:
        """How it had ended by itself, if it had."""
        told = manner(self._kept.end()) if self._is_open else ""
        self._is_open = False
        return told

    def _send(self, kind: int, half: int, content: bytes = b"") -> None:
        try:
            self._line.send(kind, half, content)
        except OSError:  # it is gone, as the next answer tells
            return

    def _answer(self, half: int) -> bytes:
        while half not in self._answers:
            message = self._message()
            assert message.kind == DONE
            self._answers[message.half] = message.content
        return self._answers.pop(half)

    def _message(self) -> Message:
        if not self._readable.poll(self._patience * 1000):
            raise Lost(f"a process of environments has not answered for {self._patience:.0f} s")
        message = self._line.receive()
        if message is None:
            self._kept.wait(1.0)
            raise Lost(f"a process of environments ended ({self._end() or 'without a word'})")
        if message.kind == RAISED:
            raise pickle.loads(message.content)
        return message

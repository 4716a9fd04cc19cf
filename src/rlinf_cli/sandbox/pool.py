"""Processes that call functions of somebody's, and are killed when a call takes too long.

Whatever a call does (hang, crash, exit, fork, print, close its descriptors), it costs its own task and nothing else, and
no process of it outlives the pool or the process that has the pool.
"""

from __future__ import annotations

import pickle
import selectors
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlinf_cli.errors import RunError
from rlinf_cli.sandbox.child import RAISED
from rlinf_cli.sandbox.output import CappedLog
from rlinf_cli.sandbox.slot import Slot, Task

Functions = Callable[[], Sequence[Callable[[Any], Any]]]
"""Makes the functions, in each process anew; it is pickled."""

_WINDOW_S = 0.01
"""Work that a process has at a time."""
_MOST_AT_ONCE = 64
_PACE_WEIGHT = 0.2
_LONGEST_WAIT_S = 60.0
_GRACE_S = 0.5
"""For the news of how a process ended, which may come after its connection closes."""


@dataclass(frozen=True)
class Failure:
    """Why a task has no result."""

    kind: Literal["raised", "timeout", "died"]
    function: int
    """Place of the function that was at it."""
    message: str
    """`KeyError: 'unit'`; `10 s`, the limit; or how the process ended, `signal 11: Segmentation fault`."""
    detail: str = ""
    """A traceback."""


@dataclass(frozen=True)
class Result:
    """What became of a task."""

    key: Any
    values: Sequence[Any] = ()
    """One of each function, unless there is a failure."""
    failure: Failure | None = None


class Pool:
    """`submit` payloads, `poll` for results, in any order. One thread uses it, the one that made it.

    Each payload goes to each function in turn, up to the first that raises. `timeout_s` is for one call of one function;
    `log`: the descriptor that gets what the processes print, up to a limit · `name`: what is at work, for messages.
    The constructor waits until all processes are ready, and raises RunError when the functions cannot be made.
    """

    def __init__(self, make: Functions, processes: int = 1, timeout_s: float = 10.0, start_timeout_s: float = 300.0,
                 name: str = "the pool", log: int = 2, env: Mapping[str, str] | None = None) -> None:
        self._make, self._env, self._name = pickle.dumps(make), env, name
        self._timeout, self._start_timeout = timeout_s, start_timeout_s
        self._log = CappedLog(log, name)
        self._queue: deque[Task] = deque()
        self._results: list[Result] = []
        self._selector = selectors.DefaultSelector()
        self._slots: list[Slot] = []
        try:
            for _ in range(processes):
                self._start()
            while not all(slot.functions for slot in self._slots):
                self._turn(_LONGEST_WAIT_S)
        except BaseException:
            self.close()
            raise

    @property
    def pending(self) -> int:
        """Tasks submitted whose results have not been polled."""
        return len(self._queue) + sum(len(slot.tasks) for slot in self._slots) + len(self._results)

    @property
    def waiting(self) -> int:
        """Tasks that no process has taken up yet."""
        return len(self._queue)

    def submit(self, key: Any, payload: Any) -> None:
        """Raises what pickle raises when the payload cannot be sent."""
        self._queue.append(Task(key, pickle.dumps(payload, pickle.HIGHEST_PROTOCOL)))

    def withdraw(self, unwanted: Callable[[Any], bool]) -> list[Any]:
        """Take back the tasks that no process has taken up and whose keys are unwanted; their keys."""
        back = [task.key for task in self._queue if unwanted(task.key)]
        self._queue = deque(task for task in self._queue if not unwanted(task.key))
        return back

    def poll(self, timeout: float | None = None) -> list[Result]:
        """Results as they come, at least one unless `timeout` seconds pass or nothing is pending. RunError when a process
        could not be started again."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        self._feed()
        while not self._results and self.pending:
            left = deadline - time.monotonic()
            self._turn(max(0.0, left))
            self._feed()
            if left <= 0:
                break
        results, self._results = self._results, []
        return results

    def close(self) -> None:
        """End all processes and all that they have started."""
        for slot in list(self._slots):
            self._end(slot)
        self._selector.close()

    def _start(self) -> None:
        slot = Slot(self._make, self._env, time.monotonic())
        self._slots.append(slot)
        self._selector.register(slot.connection, selectors.EVENT_READ, (slot, self._hear))
        self._selector.register(slot.kept.control, selectors.EVENT_READ, (slot, self._mourn))
        self._selector.register(slot.printed, selectors.EVENT_READ, (slot, self._copy))

    def _end(self, slot: Slot, patience: float = 0.0) -> str:
        for file in (slot.connection, slot.kept.control, slot.printed):
            self._selector.unregister(file)
        self._copy(slot)
        self._slots.remove(slot)
        return slot.end(patience)

    def _feed(self) -> None:
        """Hand out what waits; a process gets more when it is about to run out."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.functions and len(slot.tasks) <= slot.window // 2:
                while self._queue and len(slot.tasks) < slot.window:
                    slot.give(self._queue.popleft(), now)

    def _copy(self, slot: Slot) -> None:
        printed = slot.read_printed()
        if printed:
            self._log.write(printed)

    def _turn(self, timeout: float) -> None:
        """Wait for something to happen, for so many seconds at most, and see to it."""
        for slot in self._slots:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if slot.writes else 0)
            self._selector.modify(slot.connection, events, (slot, self._hear))
        due = min(self._deadline(slot) for slot in self._slots) - time.monotonic()
        for found, _ in self._selector.select(max(0.0, min(due, timeout, _LONGEST_WAIT_S))):
            slot, see_to = found.data
            if slot in self._slots:
                see_to(slot)
        now = time.monotonic()
        for slot in [slot for slot in self._slots if self._deadline(slot) <= now]:
            self._expire(slot)

    def _deadline(self, slot: Slot) -> float:
        if not slot.functions:
            return slot.since + self._start_timeout
        return slot.since + self._timeout if slot.tasks else float("inf")

    def _hear(self, slot: Slot) -> None:
        slot.send()
        answers, is_open = slot.receive()
        for answer in answers:
            self._take(slot, *answer)
        if not is_open:
            self._lose(slot, "died", self._end(slot, _GRACE_S) or "it closed its connection")

    def _mourn(self, slot: Slot) -> None:
        for answer in slot.receive()[0]:
            self._take(slot, *answer)
        self._lose(slot, "died", self._end(slot, _GRACE_S))

    def _expire(self, slot: Slot) -> None:
        self._end(slot)
        limit = self._timeout if slot.functions else self._start_timeout
        self._lose(slot, "timeout", f"{limit:g} s")

    def _take(self, slot: Slot, kind: str, value: Any, detail: str) -> None:
        now = time.monotonic()
        if not slot.functions:
            if kind == RAISED:
                raise RunError(f"{self._name} could not be set up: {value}")
            slot.functions = value
        elif kind == RAISED:
            self._finish(slot, now, Failure("raised", len(slot.tasks[0].values), value, detail))
        else:
            slot.tasks[0].values.append(value)
            if len(slot.tasks[0].values) == slot.functions:
                self._finish(slot, now)
        slot.since = now

    def _finish(self, slot: Slot, now: float, failure: Failure | None = None) -> None:
        task = slot.tasks.popleft()
        self._results.append(Result(task.key, task.values, failure))
        slot.pace += _PACE_WEIGHT * (now - slot.began - slot.pace)
        slot.began = now
        slot.window = max(1, min(_MOST_AT_ONCE, int(_WINDOW_S / slot.pace)))

    def _lose(self, slot: Slot, kind: Literal["timeout", "died"], message: str) -> None:
        """The process is no more: so is the task that it was at, and another process takes its place."""
        if not slot.functions:
            raise RunError(f"{self._name} could not be set up: its process "
                           + (f"ended ({message})" if kind == "died" else f"was not ready after {message}"))
        if slot.tasks:
            task = slot.tasks.popleft()
            self._results.append(Result(task.key, task.values, Failure(kind, len(task.values), message)))
        for task in reversed(slot.tasks):
            self._queue.appendleft(task)
        self._start()

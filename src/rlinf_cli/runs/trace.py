"""`trace.json`: what every rank did when, in Chrome's trace event format, which ui.perfetto.dev opens.

Times in it are microseconds since the run's first step began (`origin`, in seconds since 1970). A process is a device, a
thread a rank (and further ones what was called beside its ordinary calls); the process `run` has the steps and what lies
between. A step's slice is the time between the end of the step before it and its own; where it was under way before that,
another slice shows all of it. A call is drawn once, whole, with the step in whose time it ended.
"""

from __future__ import annotations

import heapq
import json
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from rlinf_cli.errors import UsageError
from rlinf_cli.flow.timeline import CLOCK
from rlinf_cli.runs.breakdown import DeviceTime, Placed, StepTime, pieces
from rlinf_cli.runs.files import explained, reason, write_atomically

Event: TypeAlias = dict[str, Any]

MOST_BYTES = 50_000_000
MOST_SLICES = 20_000
"""Of the calls of one step: beyond, the shortest are left out."""
EVERY_S = 5.0
"""Between two writes, at least; longer where writing takes long, so that it costs a hundredth of the time at most."""
_PATIENCE = 100

_RUN = 1
"""The process of what is not on a device; device N is process N + 2."""
_SHOWN = ("reward/mean", "throughput/tokens_per_s")
"""Metrics drawn as curves."""


@dataclass
class _Step:
    number: int
    events: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, event: Event) -> None:
        text = json.dumps(event, separators=(",", ":"))
        self.events.append(text)
        self.size += len(text) + 2


class TraceWriter:
    """Holds the latest `keep` steps and renews the file now and then; readers always find a whole one.

    `after`: the last step that counts, as for `MetricsWriter`; what the file holds of steps up to it is kept · `devices`:
    number -> name · `warn`: told once when the file cannot be written, which stops nothing else.
    """

    def __init__(self, path: Path, keep: int, after: int, devices: Mapping[int, str], warn: Callable[[str], None]) -> None:
        self._path, self._keep, self._warn = path, keep, warn
        self._steps: deque[_Step] = deque()
        self._threads: dict[tuple[int, str], int] = {}
        self._taken: dict[tuple[int, str], float] = {}
        """Until when, of threads of which there are as many as slices overlap."""
        self._names: dict[int, str] = {_RUN: "run"}
        self._start: float | None = None
        self._due, self._size, self._is_written = 0.0, 0, True
        if keep:
            self._take_up(after)
        self._names |= {device + 2: name for device, name in devices.items()}

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.write()

    def step(self, number: int, metrics: Mapping[str, float], spent: StepTime | None,
             evaluation: tuple[float, float] | None = None) -> None:
        """Add a step, or number 0, which only has an evaluation. Times are those of `time.monotonic`."""
        began = spent.began if spent is not None else evaluation[0] if evaluation is not None else None
        if not self._keep or began is None:
            return
        step = _Step(number)
        for event in self._events(number, began, metrics, spent):
            step.add(event)
        if evaluation is not None:
            step.add(self._slice(_RUN, "between steps", "evaluation", *evaluation))
        self._append(step)
        if time.monotonic() >= self._due:
            self.write()

    def checkpoint(self, began: float) -> None:
        """One has been written since `began`. Renews the file."""
        if self._steps:
            step = self._steps[-1]
            self._size -= step.size
            step.add(self._slice(_RUN, "between steps", "checkpoint", began, time.monotonic()))
            self._size += step.size
            self._is_written = False
            self.write()

    def write(self) -> None:
        """Bring the file up to date."""
        if self._is_written:
            return
        began = time.monotonic()
        try:
            write_atomically(self._path, self._document())
        except OSError as error:
            self._keep = 0
            self._steps.clear()
            self._warn(f"cannot write {self._path}: {reason(error)}; the run goes on without it")
        self._is_written = True
        self._due = time.monotonic() + max(EVERY_S, _PATIENCE * (time.monotonic() - began))

    def _append(self, step: _Step) -> None:
        self._steps.append(step)
        self._size += step.size
        self._is_written = False
        while len(self._steps) > self._keep or (self._size > MOST_BYTES and len(self._steps) > 1):
            self._size -= self._steps.popleft().size

    def _events(self, number: int, began: float, metrics: Mapping[str, float], spent: StepTime | None) -> Iterator[Event]:
        name = f"step {number}"
        yield {"ph": "i", "s": "g", "pid": _RUN, "tid": self._thread(_RUN, "steps"), "ts": self._us(began), "cat": "marker",
               "name": name, "args": {"step": number}}
        if spent is None:
            return
        yield self._slice(_RUN, "steps", name, spent.began, spent.ended)
        if spent.opened < spent.began:
            yield self._slice(_RUN, self._lane(_RUN, "under way", spent.opened, spent.ended), name, spent.opened, spent.ended)
        for metric in _SHOWN:
            if math.isfinite(value := metrics.get(metric, math.nan)):
                yield {"ph": "C", "pid": _RUN, "ts": self._us(spent.ended), "name": metric, "args": {"value": value}}
        for device, states in spent.devices.items():
            yield {**self._slice(device + 2, "device", name, spent.began, spent.ended), "cat": "device",
                   "args": {state: round(seconds, 6) for state, seconds in states.items()}}
        calls = sorted(spent.calls, key=lambda placed: placed.call.timing.began)
        slices = (one for placed in calls for one in self._call(placed))
        yield from heapq.nlargest(MOST_SLICES, slices, key=lambda one: one["dur"])

    def _call(self, placed: Placed) -> Iterator[Event]:
        call = placed.call
        first, last = call.timing.began, call.timing.began + call.timing.total
        for device in placed.devices:
            name = f"{call.role}[{call.rank}]" + (" beside" if call.beside else "")
            thread = self._lane(device + 2, name, first, last)
            yield self._slice(device + 2, thread, call.method, first, last)
            for began, ended, kind in pieces(call):
                if kind is not None:
                    yield self._slice(device + 2, thread, kind, began, ended)

    def _slice(self, process: int, thread: str, name: str, began: float, ended: float) -> Event:
        return {"ph": "X", "pid": process, "tid": self._thread(process, thread), "ts": self._us(began),
                "dur": round(max(0.0, ended - began) * 1e6, 1), "name": name}

    def _lane(self, process: int, name: str, began: float, ended: float) -> str:
        """The first thread of this name, or `NAME 2` and so on, that is free: slices of a thread must not overlap."""
        names = (f"{name} {number}" if number > 1 else name for number in count(1))
        lane = next(one for one in names if self._taken.get((process, one), 0.0) <= began)
        self._taken[process, lane] = ended
        return lane

    def _thread(self, process: int, name: str) -> int:
        # no number twice, in whatever process: viewers differ in whether they look at the process
        return self._threads.setdefault((process, name), 1001 + len(self._threads))

    def _us(self, at: float) -> float:
        if self._start is None:
            self._start = at
        return round((at - self._start) * 1e6, 1)

    def _document(self) -> str:
        metadata = [_named("process_name", process, 0, name) for process, name in self._names.items()]
        metadata += [_named("thread_name", process, thread, name) for (process, name), thread in self._threads.items()]
        lines = [json.dumps(event, separators=(",", ":")) for event in metadata]
        lines += [",\n".join(step.events) for step in self._steps]
        origin = CLOCK + (self._start or 0.0)
        head = json.dumps({"displayTimeUnit": "ms", "otherData": {"origin": origin}})
        return head[:-1] + ', "traceEvents": [\n' + ",\n".join(lines) + "\n]}\n"

    def _take_up(self, after: int) -> None:
        """What an earlier attempt has left; nothing, if it is no trace of ours."""
        try:
            document = _read(self._path)
            start = float(document["otherData"]["origin"]) - CLOCK
            names, steps = _split(document["traceEvents"])
        except (UsageError, LookupError, TypeError, ValueError):
            return
        self._start = start
        for (process, name), thread in names.items():
            if thread:
                self._threads[process, name] = thread
            else:
                self._names[process] = name
        for number, events in steps:
            if number <= after:
                step = _Step(number)
                for event in events:
                    step.add(event)
                self._append(step)


@dataclass(frozen=True)
class TracedStep:
    """What a trace says of one step."""

    number: int
    seconds: float
    devices: Mapping[str, DeviceTime]
    """Name of a device -> where its time went."""


def read_trace(path: Path) -> list[TracedStep]:
    """The steps of a run's trace, oldest first. Raises UsageError when there is none, or it is damaged."""
    document = _read(path)
    try:
        names, steps = _split(document["traceEvents"])
        processes = {process: name for (process, name), thread in names.items() if not thread}
        return [_traced(number, events, processes) for number, events in steps if number]
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{path} is not the trace of a run: it lacks what rlinf train writes there") from error


def copy_trace(path: Path, target: Path) -> None:
    """A copy to take elsewhere. Raises UsageError when it cannot be made."""
    _read(path)
    with explained(f"cannot write {target}", UsageError):
        shutil.copyfile(path, target)


def _traced(number: int, events: list[Event], processes: Mapping[int, str]) -> TracedStep:
    found = {processes[event["pid"]]: event for event in events if event.get("cat") == "device"}
    seconds = max((event["dur"] for event in found.values()), default=0.0) / 1e6
    return TracedStep(number, seconds, {name: event["args"] for name, event in found.items()})


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no {path}: it comes with the first step of a run, unless log.trace=0") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not the trace of a run")
    return found


def _split(events: list[Event]) -> tuple[dict[tuple[int, str], int], list[tuple[int, list[Event]]]]:
    """Names of processes (thread 0) and threads, and the events of each step."""
    names: dict[tuple[int, str], int] = {}
    steps: list[tuple[int, list[Event]]] = []
    for event in events:
        if event["ph"] == "M":
            names[event["pid"], event["args"]["name"]] = event["tid"]
            continue
        if event.get("cat") == "marker":
            steps.append((event["args"]["step"], []))
        steps[-1][1].append(event)
    return names, steps


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "pid": process, "tid": thread, "name": kind, "args": {"name": name}}

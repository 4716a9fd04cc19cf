"""Notices that a run stands still, and has every worker write down where it is."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray

from rlinf_cli.flow.group import Group
from rlinf_cli.flow.incident import Incident
from rlinf_cli.state.supervisor import Activity, DumpStacks, Event, Instruction, Tick

_SLICE_S = 0.2
_MOST_S = 5.0
"""Longest time between two looks."""
_DUMP_S = 5.0
"""What workers may take to write."""


class StallWatch:
    """A thread that compares, from time to time, what the controller and the groups have counted.

    `controller`: the actor · `groups`: those that there are · `handle`: brings an event to the supervisor's state.
    """

    def __init__(self, controller: Any, groups: Callable[[], Sequence[Group]], timeout: float,
                 handle: Callable[[Event], list[Instruction]], on_incident: Callable[[Incident], None]) -> None:
        self._controller, self._groups, self._timeout = controller, groups, timeout
        self._handle, self._on_incident = handle, on_incident
        self._seen: object = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlinf-stall", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_MOST_S)

    def _run(self) -> None:
        while not self._stopping.wait(min(_MOST_S, self._timeout / 4)):
            groups = self._groups()
            count = self._count(groups)
            if count != self._seen:
                self._seen = count
                self._handle(Activity(time.monotonic()))
            calls = [call for group in groups for call in group.open_calls()]
            for instruction in self._handle(Tick(time.monotonic(), bool(calls))):
                if isinstance(instruction, DumpStacks):
                    self._dump(instruction.why, groups, calls)

    def _count(self, groups: Sequence[Group]) -> tuple[int, ...]:
        """What changes as long as anybody gets anywhere."""
        said = self._ask([self._controller.stats.remote()])
        return sum(stats["activity"] for stats in said), *(number for group in groups for number in group.call_counts)

    def _dump(self, why: str, groups: Sequence[Group], calls: Sequence[str]) -> None:
        files = self._ask([group.dump_stacks(rank, why) for group in groups for rank in group.alive])
        where = f"stacks in {', '.join(dict.fromkeys(files))}" if files else "no worker that answers"
        first = next(group for group in groups if group.open_calls())
        self._on_incident(Incident(time.time(), first.role, first.alive[0], first.seats[first.alive[0]].node,
                                   f"{why} in {', '.join(dict.fromkeys(calls))}", "stalled", where))

    def _ask(self, refs: Sequence[Any]) -> list[Any]:
        """What those say that answer in time."""
        deadline = time.monotonic() + _DUMP_S
        ready: list[Any] = []
        while len(ready) < len(refs) and time.monotonic() < deadline and not self._stopping.is_set():
            ready = ray.wait(list(refs), num_returns=len(refs), timeout=_SLICE_S)[0]
        answers = []
        for ref in ready:
            with contextlib.suppress(ray.exceptions.RayError):  # it is dead
                answers.append(ray.get(ref))
        return answers

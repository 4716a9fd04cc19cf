"""Sees, in the driver, the end of any rank's process, within moments and whether or not somebody waits for it."""

from __future__ import annotations

import atexit
import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any

import ray

from rlinf_cli.flow.errors import WorkerDiedError
from rlinf_cli.flow.exits import NOWHERE, Exit
from rlinf_cli.flow.handle import break_outs

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group

_PERIOD_S = 0.2


class Watch:
    """A thread that waits for the ends of all ranks' `Host.watch` calls, which only end with their process.

    A channel into which a dead rank's calls still had to put is broken at once, so that nobody waits on it.
    """

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._groups: list[Group] = []
        self._watched: dict[Any, tuple[Group, int]] = {}
        self._greeted: dict[Any, tuple[Group, int]] = {}
        self._exits: dict[tuple[str, int], tuple[int, Exit]] = {}
        self._deaths: dict[tuple[str, int], WorkerDiedError] = {}
        self._told = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlinf-watch", daemon=True)
        self._thread.start()
        # before Ray's own: a thread that asks Ray for anything after its end takes the process along, with exit code 1
        atexit.register(self.stop)

    def add(self, group: Group) -> None:
        with self._lock:
            self._groups.append(group)
            for rank, host in enumerate(group.actors):
                self._greeted[host.hello.options(concurrency_group="host").remote()] = group, rank
                self._watched[host.watch.options(concurrency_group="host").remote()] = group, rank

    def remove(self, group: Group) -> None:
        """The group is about to be ended; what became of it is no news any more."""
        with self._lock:
            self._groups = [one for one in self._groups if one is not group]
            self._watched = {ref: one for ref, one in self._watched.items() if one[0] is not group}
            self._greeted = {ref: one for ref, one in self._greeted.items() if one[0] is not group}
            for key in [key for key in self._exits if key[0] == group.role]:
                self._exits.pop(key)[1].close()
            self._deaths = {key: death for key, death in self._deaths.items() if key[0] != group.role}
            self._told = self._told and bool(self._deaths)

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._stopping.set()
        self._thread.join(5.0)
        for _, exit_ in self._exits.values():
            exit_.close()

    def death(self, group: Group, rank: int, told: BaseException) -> WorkerDiedError:
        """The error for a rank that Ray says is dead."""
        with self._lock:
            known = self._deaths.get((group.role, rank))
            if known is None:
                pid, exit_ = self._exits.get((group.role, rank), (0, NOWHERE))
                reason = exit_.reason() or reason_of(told)
                known = group.death(rank, reason, pid)
                if self._watches(group):  # or it was removed while the thread looked at its end
                    self._deaths[group.role, rank] = known
            return known

    def take_news(self) -> list[WorkerDiedError]:
        """A death that nobody has been told of. The first one ends a run, so that later ones are no news: the calls
        that save what can be saved go on."""
        with self._lock:
            news = [] if self._told else list(self._deaths.values())[:1]
            self._told = self._told or bool(news)
            return news

    def latest(self) -> WorkerDiedError | None:
        """Of all deaths."""
        with self._lock:
            return next(reversed(self._deaths.values()), None)

    def tell(self) -> None:
        """Somebody has been told of a death."""
        with self._lock:
            self._told = True

    def _watches(self, group: Group) -> bool:
        return any(one is group for one in self._groups)

    def _run(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                waiting = [*self._watched, *self._greeted]
            if not waiting:
                self._stopping.wait(_PERIOD_S)
                continue
            for ref in ray.wait(waiting, num_returns=1, timeout=_PERIOD_S)[0]:
                with self._lock:
                    greeted, watched = self._greeted.pop(ref, None), self._watched.pop(ref, None)
                if greeted is not None:
                    self._meet(ref, *greeted)
                elif watched is not None:  # or removed meanwhile
                    self._mourn(ref, *watched)

    def _meet(self, ref: Any, group: Group, rank: int) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # died already: `watch` tells
            pid = ray.get(ref)
            local = group.seats[rank].node_id == self._node_id
            with self._lock:
                if self._watches(group):
                    self._exits[group.role, rank] = pid, Exit(pid) if local else NOWHERE

    def _mourn(self, ref: Any, group: Group, rank: int) -> None:
        try:
            ray.get(ref)
        except ray.exceptions.RayError as told:
            if not self._stopping.is_set():
                break_outs(group.open_outs(rank), self.death(group, rank, told))


def reason_of(told: BaseException) -> str:
    """What Ray knows of a process's end, in few words."""
    text = " ".join(str(told).split())
    if "error raised in its creation task" in text:
        return f"its process could not be set up: {str(told).strip().splitlines()[-1]}"
    if "running low on memory" in text:
        return "ended by Ray because its node ran out of memory"
    if re.search(r"node (has )?died|node .{0,80}is (dead|terminated)", text):
        return "its node is gone"
    found = re.search(r"Worker exit type: \w+ Worker exit detail: (.{1,60}?)[.(]", text)
    return found[1].strip() if found else "its process ended"

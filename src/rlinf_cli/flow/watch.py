"""Sees, in the driver, the end of any rank's process, within moments and whether or not somebody waits for it."""

from __future__ import annotations

import atexit
import contextlib
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray

from rlinf_cli.flow.exits import NOWHERE, Exit
from rlinf_cli.flow.handle import Error, break_outs
from rlinf_cli.flow.nodes import living_nodes

if TYPE_CHECKING:
    from rlinf_cli.flow.crew import Crew
    from rlinf_cli.flow.group import Group
    from rlinf_cli.flow.seat import Seat

_PERIOD_S = 0.2
NODE_GONE = "its node is gone"


class Watch:
    """A thread that waits for the ends of all ranks' `Host.watch` calls, which only end with their process.

    `on_death(crew, rank, told)` is called on that thread: it decides what follows, and does not take long.
    """

    def __init__(self, node_id: str, on_death: Callable[[Crew, int, BaseException], None]) -> None:
        self._node_id, self._on_death = node_id, on_death
        self._crews: list[Crew] = []
        self._watched: dict[Any, tuple[Crew, int]] = {}
        self._greeted: dict[Any, tuple[Crew, int]] = {}
        self._exits: dict[str, tuple[int, Exit]] = {}
        self._deaths: dict[tuple[str, int], Error] = {}
        self._told = False
        self._aside = threading.local()
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rlinf-watch", daemon=True)
        self._thread.start()
        # before Ray's own: a thread that asks Ray for anything after its end takes the process along, with exit code 1
        atexit.register(self.stop)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def add(self, crew: Crew) -> None:
        with self._lock:
            self._crews.append(crew)
        for rank in range(len(crew.actors)):
            self.add_rank(crew, rank)

    def add_rank(self, crew: Crew, rank: int) -> None:
        """A rank's process is there, for the first time or again."""
        host = crew.actors[rank]
        with self._lock:
            if self._watches(crew):
                self._greeted[host.hello.options(concurrency_group="host").remote()] = crew, rank
                self._watched[host.watch.options(concurrency_group="host").remote()] = crew, rank

    def remove(self, crew: Crew) -> list[Any]:
        """The crew is about to be ended; what became of it is no news any more. References that end with its processes."""
        roles, hosts = {group.role for group in crew.groups}, {seats[0].host for seats in crew.seats}
        with self._lock:
            self._crews = [one for one in self._crews if one is not crew]
            ending = [ref for ref, one in self._watched.items() if one[0] is crew]
            self._watched = {ref: one for ref, one in self._watched.items() if one[0] is not crew}
            self._greeted = {ref: one for ref, one in self._greeted.items() if one[0] is not crew}
            for host in hosts & set(self._exits):
                self._exits.pop(host)[1].close()
            self._deaths = {key: death for key, death in self._deaths.items() if key[0] not in roles}
            self._told = self._told and bool(self._deaths)
            return ending

    def stop(self) -> None:
        atexit.unregister(self.stop)
        self._stopping.set()
        self._thread.join(5.0)
        for _, exit_ in self._exits.values():
            exit_.close()

    # ---- what is known of deaths ----

    def fate(self, crew: Crew, rank: int, told: BaseException) -> tuple[str, int]:
        """How a dead rank's process ended, in words, and its id (0 where that is not known)."""
        with self._lock:
            return self._fate(crew.seats[rank][0], told)

    def death(self, group: Group, rank: int, told: BaseException) -> Error:
        """The error for a rank that Ray says is dead, and that ends what waits for it."""
        with self._lock:
            known = self._deaths.get((group.role, rank))
            if known is None:
                known = group.death(rank, *self._fate(group.seats[rank], told))
                if any(group in crew.groups for crew in self._crews):  # or it was removed while the thread looked at its end
                    self._deaths[group.role, rank] = known
            return known

    def mourn(self, crew: Crew, rank: int, told: BaseException) -> None:
        """Tell of a death whoever waits, for the rank or for its channels: what it had still to put will not come."""
        for group in sorted(crew.groups, key=lambda group: group.is_idle(rank)):  # first the one that it happened to
            break_outs(group.open_outs(rank), self.death(group, rank, told))
            group.leave_turns(rank)

    def lose(self, group: Group, rank: int, error: Error) -> None:
        """As `mourn`, for a rank that was to come back and does not."""
        with self._lock:
            self._deaths[group.role, rank] = error
        group.lose_rank(rank, error)

    def aside(self) -> None:
        """Whoever waits in this thread is not told of others' deaths, which are meant for the run."""
        self._aside.active = True

    def take_news(self) -> list[Error]:
        """A death that nobody has been told of. The first one ends a run, so that later ones are no news: the calls
        that save what can be saved go on."""
        if hasattr(self._aside, "active"):
            return []
        with self._lock:
            news = [] if self._told else list(self._deaths.values())[:1]
            self._told = self._told or bool(news)
            return news

    def latest(self) -> Error | None:
        """Of all deaths."""
        with self._lock:
            return next(reversed(self._deaths.values()), None)

    def tell(self) -> None:
        """Somebody has been told of a death."""
        if not hasattr(self._aside, "active"):
            with self._lock:
                self._told = True

    def _fate(self, seat: Seat, told: BaseException) -> tuple[str, int]:
        pid, exit_ = self._exits.get(seat.host, (0, NOWHERE))
        how = exit_.reason()
        if not how and seat.node_id != self._node_id and seat.node_id not in living_nodes():
            how = NODE_GONE
        return how or reason_of(told), pid

    # ---- the thread ----

    def _watches(self, crew: Crew) -> bool:
        return any(one is crew for one in self._crews)

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
                    self._see_off(ref, *watched)

    def _meet(self, ref: Any, crew: Crew, rank: int) -> None:
        with contextlib.suppress(ray.exceptions.RayError):  # died already: `watch` tells
            pid, seat = ray.get(ref), crew.seats[rank][0]
            with self._lock:
                if self._watches(crew):
                    self._exits.pop(seat.host, (0, NOWHERE))[1].close()
                    self._exits[seat.host] = pid, Exit(pid) if seat.node_id == self._node_id else NOWHERE

    def _see_off(self, ref: Any, crew: Crew, rank: int) -> None:
        try:
            ray.get(ref)
        except ray.exceptions.RayError as told:
            if not self._stopping.is_set():
                self._on_death(crew, rank, told)


def reason_of(told: BaseException) -> str:
    """What Ray knows of a process's end, in few words."""
    text = " ".join(str(told).split())
    if "error raised in its creation task" in text:
        return f"its process could not be set up: {str(told).strip().splitlines()[-1]}"
    if "running low on memory" in text:
        return "ended by Ray because its node ran out of memory"
    if re.search(r"node (has )?died|node .{0,80}is (dead|terminated)", text):
        return NODE_GONE
    found = re.search(r"Worker exit type: \w+ Worker exit detail: (.{1,60}?)[.(]", text)
    return found[1].strip() if found else "its process ended"

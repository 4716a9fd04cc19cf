"""The processes of a role, or of several roles that share them: how one is started, and started again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray

from rlinf_cli.flow.client import client
from rlinf_cli.flow.group import Group
from rlinf_cli.flow.host import Host, concurrency
from rlinf_cli.flow.seat import Plan, Seat
from rlinf_cli.flow.worker import Worker

Options = Callable[[str], Mapping[str, Any]]
"""From a node's id to Ray's options for an actor on it."""


@dataclass(frozen=True)
class Part:
    """A role to be started: its worker, and what goes to the worker's constructor."""

    role: str
    worker: type[Worker]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class Crew:
    """One process a rank, which each of the groups has a seat in.

    `seats`: of each rank, one for each part · `restartable`: a process that dies is started again at its seats.
    """

    def __init__(self, parts: Sequence[Part], plans: Sequence[Plan], seats: Sequence[Sequence[Seat]], options: Options,
                 restartable: bool) -> None:
        self.parts, self.restartable = tuple(parts), restartable
        self.name = seats[0][0].process
        self.seats = [tuple(mine) for mine in seats]
        self._plans, self._options = tuple(plans), options
        self.actors = [self._start(mine) for mine in self.seats]
        self.groups: tuple[Group, ...] = ()
        self.ended = False
        """Stopped, or launched anew: what becomes of its processes is no news any more."""

    def man(self, groups: Sequence[Group], start_timeout: float) -> None:
        """Have the workers of these groups made, one group for each part."""
        self.groups = tuple(groups)
        # ranks that come and go one by one cannot meet
        meets = len(self.actors) > 1 and not self.restartable
        for group, plan in zip(self.groups, self._plans, strict=True):
            meeting = self.actors[0].reserve.options(concurrency_group="host").remote() if meets else ""
            for actor in self.actors:
                actor.prepare.options(concurrency_group="host").remote(group.role, plan, meeting)
        for group in self.groups:
            group.building(start_timeout)

    def renew(self, rank: int, seats: Sequence[Seat] = ()) -> list[Any]:
        """Start a process in the place of one that is dead, on the devices of other `seats` where there are any; the
        references of the calls that make its workers."""
        self.kill(rank)
        self.dismiss([rank])
        self.seats[rank] = tuple(replace(seat, incarnation=seat.incarnation + 1) for seat in seats or self.seats[rank])
        self.actors[rank] = actor = self._start(self.seats[rank])
        for group, seat, plan in zip(self.groups, self.seats[rank], self._plans, strict=True):
            group.reseat_rank(rank, seat, actor)
            actor.prepare.options(concurrency_group="host").remote(group.role, plan, "")
        return [group.build_rank(rank) for group in self.groups]

    def kill(self, rank: int) -> None:
        ray.kill(self.actors[rank])

    def dismiss(self, ranks: Iterable[int]) -> None:
        """Have the controller be done with these processes, which are dead, before others come under their names: it may
        not have noticed yet."""
        client().request("dismiss", ["+".join(seat.identity for seat in self.seats[rank]) for rank in ranks])

    def _start(self, seats: Sequence[Seat]) -> Any:
        first = seats[0]
        named = {"name": first.actor_name} if self.restartable else {}
        return actor_of(Host, {**self._options(first.node_id), **named}, len(seats)).remote(seats)


def actor_of(kind: type, options: Mapping[str, Any], tenants: int = 1) -> Any:
    """Ray's actor class of a plain class."""
    return _actor_class(kind, tenants).options(**options)


@functools.cache
def _actor_class(kind: type, tenants: int) -> Any:
    return ray.remote(concurrency_groups=concurrency(tenants))(kind) if kind is Host else ray.remote(kind)

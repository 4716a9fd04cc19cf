"""Environments whose policy is in other processes: they wait for its actions, and tell it what comes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.exchange import END, Address, Alive, Caller, Link, LinkLost, close_all
from rlinf_cli.flow.timeline import spent
from rlinf_cli.workers.environments.partition import Partition
from rlinf_cli.workers.environments.posting import action_shapes, actions_of, arrival_shapes, post
from rlinf_cli.workers.environments.simulators import Arrival, Simulators

_POLL_S = 0.01


class Over(Exception):
    """The policy's call has ended, and no action will come any more."""


class Serving:
    """Of one rank. Links last as long as both ends do."""

    def __init__(self, rank: int, simulators: Simulators, chunk: int) -> None:
        self._rank, self._simulators, self._chunk = rank, simulators, chunk
        self._caller = Caller(rank)
        self._links: dict[int, Link] = {}
        self._rows: dict[int, slice] = {}

    def serve(self, partition: Partition, actions: Channel) -> None:
        """Act as the policy says, until it says that there is nothing more in this step, or there is not. What breaks off on the
        way is begun again by both sides; the episodes go on."""
        alive, addresses = watching(actions), Addresses(actions, self._rank)
        again = False
        try:
            while not self._attempt(partition, addresses.of, alive, again):
                again = True
        except Over:
            return
        finally:
            addresses.settle()

    def close(self) -> None:
        close_all(self._links)

    def _attempt(self, partition: Partition, address: Callable[[int], Address], alive: Alive, again: bool) -> bool:
        """Whether it came to the end of the step; `again`: the one before did not."""
        try:
            self._meet(partition, address, alive, again)
            self._serve(alive)
        except LinkLost:
            close_all(self._links)
            return False
        return True

    def _meet(self, partition: Partition, address: Callable[[int], Address], alive: Alive, again: bool) -> None:
        rows = partition.actors_of(self._rank)
        if not self._links or rows != self._rows:
            close_all(self._links)
            wanted = {acting: self._shapes(partition, rows[acting]) for acting in rows}
            self._links, self._rows = self._caller.meet(wanted, address, alive, again), rows

    def _shapes(self, partition: Partition, rows: slice) -> tuple[Any, Any]:
        count = rows.stop - rows.start
        there = arrival_shapes(self._simulators.observation_space, count)
        back = action_shapes(self._simulators.action_space, count, self._chunk)
        return (there,) * partition.halves, (back,) * partition.halves

    def _serve(self, alive: Alive) -> None:
        simulators = self._simulators
        actions = {half: empty_actions(simulators.action_space, simulators.size, self._chunk) for half in simulators.halves}
        for half in simulators.halves:
            self._tell(half, simulators.latest(half), self._links)
        left = dict(self._links)
        while not simulators.is_over:
            for half in simulators.halves:
                left = {acting: link for acting, link in left.items() if link.receive(alive) != END}
                if not left:
                    return
                for acting, link in left.items():
                    actions[half][self._rows[acting]] = actions_of(link.into[half])
                simulators.send(half, actions[half])
                arrival = simulators.receive(half)
                if simulators.is_over:
                    break
                self._tell(half, arrival, left)
        for link in left.values():
            link.end()

    def _tell(self, half: int, arrival: Arrival, links: dict[int, Link]) -> None:
        for acting, link in links.items():
            post(arrival, self._rows[acting], link.out[half])
            link.send(half)


class Addresses:
    """Where the ranks of the policy are to be met, as they say in a step's channel, and again when they are started anew."""

    def __init__(self, channel: Channel, rank: int) -> None:
        self._channel, self._rank = channel, rank
        self._known: dict[int, Address] = {}
        self._leases: list[Any] = []

    def of(self, acting: int) -> Address:
        """Raises Over, and ChannelBrokenError."""
        key = f"{acting}-{self._rank}"
        while True:
            try:
                newer = self._channel.lease(1, at_least=0, key=key)
            except ChannelClosedError:
                raise Over from None
            self._leases += newer
            if newer:
                self._known[acting] = newer[-1].item
            if acting in self._known:
                return self._known[acting]
            with spent("wait_data"):
                time.sleep(_POLL_S)

    def settle(self) -> None:
        """Only now: a process that follows this one asks for them again."""
        self._channel.settle(self._leases)


def watching(channel: Channel) -> Alive:
    """Raises ChannelBrokenError once a channel is broken, and Over once it has closed."""

    def look() -> None:
        try:
            channel.get(1, at_least=0, key="nothing")
        except ChannelClosedError:
            raise Over from None

    return look


def empty_actions(space: Space[Any], count: int, chunk: int) -> NDArray[Any]:
    """Zeros, of so many environments, as `Pool.send` takes them."""
    (shape, dtype), = action_shapes(space, count, chunk).values()
    return np.zeros(shape, dtype)

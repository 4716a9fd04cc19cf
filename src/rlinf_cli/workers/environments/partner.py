"""The environments as their policy sees them: in the same process, or behind links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from gymnasium.spaces import Dict, Space
from numpy.typing import NDArray

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.exchange import END, Link, LinkLost, Listener, close_all
from rlinf_cli.rl.segment import Episode
from rlinf_cli.workers.environments.here import borrow, give_back
from rlinf_cli.workers.environments.partition import Partition
from rlinf_cli.workers.environments.posting import actions_of, beside, posted
from rlinf_cli.workers.environments.serving import watching
from rlinf_cli.workers.environments.simulators import Arrival, Simulators


class Partner(Protocol):
    """Of one rank of the policy, for one step. Halves are received, and sent, in turn."""

    def begin(self) -> None:
        """Raises LinkLost, as all of these; the step then begins anew."""
        ...

    def receive(self, half: int) -> Arrival | None:
        """None: the environments have no more to do."""
        ...

    def send(self, half: int, actions: NDArray[Any]) -> None: ...

    def end(self) -> None:
        """There is nothing more in this step."""
        ...

    def told(self) -> list[Episode]:
        """Episodes that have ended; once the step has ended."""
        ...


class Direct:
    """Environments that are here to be stepped."""

    def __init__(self, simulators: Simulators) -> None:
        self._simulators = simulators
        self._first: set[int] = set()

    def begin(self) -> None:
        self._first = set(self._simulators.halves)

    def receive(self, half: int) -> Arrival | None:
        if half in self._first:
            self._first.remove(half)
            return None if self._simulators.is_over else self._simulators.latest(half)
        arrival = self._simulators.receive(half)
        return None if self._simulators.is_over else arrival

    def send(self, half: int, actions: NDArray[Any]) -> None:
        self._simulators.send(half, actions)

    def end(self) -> None:
        """Nobody waits for it."""

    def told(self) -> list[Episode]:
        return self._simulators.take_episodes()


class Here(Direct):
    """In this process: `role` lends them until `close`, whatever comes of the step. Waits until it does; `observations` tells
    of its end."""

    def __init__(self, role: str, observations: Channel) -> None:
        super().__init__(borrow(role, watching(observations)))
        self._role = role

    def close(self) -> None:
        give_back(self._role)


class Links:
    """To other processes, for as long as they last. One a worker."""

    def __init__(self, listener: Listener, rank: int) -> None:
        self.listener, self._rank = listener, rank
        self.links: dict[int, Link] = {}
        self._again = False

    def step(self, partition: Partition, observation_space: Space[Any], observations: Channel, actions: Channel) -> There:
        """For one step: says where it is to be met."""
        for simulating in partition.simulators_of(self._rank):
            actions.put(self.listener.address, key=f"{self._rank}-{simulating}")
        return There(self, partition.simulators_of(self._rank), isinstance(observation_space, Dict), observations, self._rank)

    def meet(self, observations: Channel) -> None:
        if not self.links:
            self.links = self.listener.meet(watching(observations), self._again)
            self._again = False

    def lost(self) -> None:
        """One of them is: all begin anew."""
        close_all(self.links)
        self._again = True

    def close(self) -> None:
        close_all(self.links)
        self.listener.close()


class There:
    """In other processes, maybe on other nodes."""

    def __init__(self, links: Links, rows: Mapping[int, slice], is_mapping: bool, observations: Channel, rank: int) -> None:
        self._links, self._rows, self._is_mapping = links, rows, is_mapping
        self._observations, self._alive, self._rank = observations, watching(observations), rank
        self._ended: set[int] = set()

    def begin(self) -> None:
        self._ended.clear()
        self._links.meet(self._observations)

    def receive(self, half: int) -> Arrival | None:
        for simulating, link in self._links.links.items():
            kind = END if simulating in self._ended else link.receive(self._alive)
            if kind == END:
                self._ended.add(simulating)
            elif kind != half:
                raise LinkLost
        # of ranks that have ended it is what they told last, for nobody
        arrivals = [posted(link.into[half], self._is_mapping) for link in self._ordered()]
        return None if len(self._ended) == len(self._rows) else beside(arrivals)

    def send(self, half: int, actions: NDArray[Any]) -> None:
        for simulating, link in zip(self._rows, self._ordered(), strict=True):
            if simulating not in self._ended:
                actions_of(link.out[half])[:] = actions[self._rows[simulating]]
                link.send(half)

    def end(self) -> None:
        for link in self._ordered():
            link.end()

    def told(self) -> list[Episode]:
        """Each rank of the environments tells one rank of the policy, the first that it has a link to."""
        return [episode for _ in self._rows for episode in self._observations.get(1, key=str(self._rank))[0]]

    def close(self) -> None:
        """Links stay."""

    def _ordered(self) -> list[Link]:
        return [self._links.links[simulating] for simulating in self._rows]

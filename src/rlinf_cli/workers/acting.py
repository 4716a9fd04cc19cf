"""The rollout role of embodied tasks: a policy that acts, and notes what comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.policy import Policy
from rlinf_cli.flow.client import client
from rlinf_cli.flow.exchange import Address, LinkLost, Listener
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.weights_layout import Manifest
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.flow.worker import Worker, control, on_device
from rlinf_cli.rl.segment import Episode, Observation, Segment
from rlinf_cli.workers.collecting import Collector
from rlinf_cli.workers.environment import evaluated_at_once, halves_of
from rlinf_cli.workers.environments.buffers import part
from rlinf_cli.workers.environments.build import spaces
from rlinf_cli.workers.environments.partition import Partition
from rlinf_cli.workers.environments.partner import Here, Links, Partner, There
from rlinf_cli.workers.environments.posting import named
from rlinf_cli.workers.environments.simulators import Arrival
from rlinf_cli.workers.policies import Actor, PolicyEngine, build_policy, load_weights, tensors
from rlinf_cli.workers.sharing import offer_engine

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group


ROWS = 1024
"""Observations that are valued at once."""


class PolicyWorker(Worker):
    """One replica. It answers an equal part of the environments of each half."""

    def __init__(self, config: RunConfig, beside: bool = False, policy: str | None = None) -> None:
        """`beside`: the environments are in the same process · `policy`: the checkpoint that the weights come from, where none
        are published."""
        self._config, self._beside = config, beside
        self._spaces = spaces(config, self.device)
        built = build_policy(config, self._spaces, self.device)
        if policy is not None:
            load_weights(built, Path(policy))
        self._engine = PolicyEngine(built)
        self._receiver = Receiver(client(), Path(), keep=config.cluster.weights_delta)
        self._links: Links | None = None
        self._stays = config.env.resident
        offer_engine(self.role, self._engine)

    @on_device
    def act(self, observations: In[list[Episode]], actions: Out[Address], segments: Out[Segment], environment: Group) -> None:
        """Act in the environments for `rollout.steps` actions each, and put what came of it: a segment of each half."""
        halves = halves_of(self._config, self._beside)
        partition = Partition(self._config.env.count, halves, environment.size, self.world)
        links = self._links = None if self._beside else self._links or self._listen(partition, environment)
        with self._partner(partition, environment, observations, actions, links) as partner:
            while True:
                turns = Turns(self._config, self._engine, self.device, partition, self.rank, self._stays)
                try:
                    partner.begin()
                    made = turns.run(partner)
                    partner.end()
                    break
                except LinkLost:
                    assert links is not None
                    links.lost()
        made[0].episodes.extend(partner.told())
        for segment in made:
            segments.put(segment)

    @on_device
    def answer(self, observations: In[list[Episode]], actions: Out[Address], environment: Group) -> None:
        """Act in an evaluation's episodes until there are no more; one environment after the other, so that what is computed
        for it does not depend on the others."""
        count = evaluated_at_once(self._config, environment.size, self.world) * environment.size
        partition = Partition(count, 1, environment.size, self.world)
        links = None if self._beside else self._listen(partition, environment)
        actor = Actor(self._config, self._engine.policy, self.device, np.zeros(1, np.int64))
        try:
            with self._partner(partition, environment, observations, actions, links) as partner:
                partner.begin()
                while (arrival := partner.receive(0)) is not None:
                    partner.send(0, self._answered(actor, arrival))
        finally:
            if links is not None:
                links.close()

    def _answered(self, actor: Actor, arrival: Arrival) -> NDArray[np.generic]:
        deterministic = self._config.eval.temperature == 0
        seen = actor.seen(arrival.observation, arrival.tasks)
        alone = [slice(row, row + 1) for row in range(len(arrival.numbers))]
        with self._engine.acting() as policy:
            acted = [actor.act(policy, part(seen, row), arrival.numbers[row], arrival.ages[row], deterministic) for row in alone]
        return np.concatenate([one.actions.cpu().numpy() for one in acted])

    @control
    def update_weights(self, manifest: Manifest) -> str:
        """Take over the published weights, between two actions; the checksum of what the policy then holds."""
        with spent("sync"):
            return self._receiver.update(self._engine, manifest)

    def onload(self) -> int:
        return self._engine.resume_memory(self.device)

    def offload(self) -> int:
        return self._engine.release_memory()

    def close(self) -> None:
        if self._links is not None:
            self._links.close()

    @contextmanager
    def _partner(self, partition: Partition, environment: Group, observations: In[list[Episode]], actions: Out[Address],
                 links: Links | None) -> Iterator[Here | There]:
        partner: Here | There
        if links is None:
            partner = Here(environment.role, observations)
        else:
            partner = links.step(partition, self._spaces[0], observations, actions)
        try:
            yield partner
        finally:
            partner.close()

    def _listen(self, partition: Partition, environment: Group) -> Links:
        callers = list(partition.simulators_of(self.rank))
        elsewhere = any(environment.seats[rank].node != self.node for rank in callers)
        return Links(Listener(callers, elsewhere), self.rank)


class Turns:
    """One attempt at a step: for each half, what is known of it so far."""

    def __init__(self, config: RunConfig, engine: PolicyEngine, device: str, partition: Partition, rank: int,
                 stays: bool) -> None:
        self._engine, self._device, self._steps, self._stays = engine, device, config.rollout.steps, stays
        environments = [partition.environments(rank, half) for half in range(partition.halves)]
        self._collectors = [Collector(numbers, self._steps) for numbers in environments]
        self._actors = [Actor(config, engine.policy, device, numbers) for numbers in environments]

    def run(self, partner: Partner) -> list[Segment]:
        for t in range(self._steps):
            for half, collector in enumerate(self._collectors):
                arrival = self._received(partner, half)
                partner.send(half, self._act(t, half, collector, arrival))
        return [self._finished(half, self._received(partner, half)) for half in range(len(self._collectors))]

    def _received(self, partner: Partner, half: int) -> Arrival:
        arrival = partner.receive(half)
        if arrival is None:
            raise LinkLost
        return arrival

    def _act(self, t: int, half: int, collector: Collector, arrival: Arrival) -> NDArray[np.generic]:
        actor = self._actors[half]
        observation = collector.take(t, arrival, actor.seen(arrival.observation, arrival.tasks))
        if not self._stays:
            self._engine.resume_memory(self._device)
        with self._engine.acting() as policy:
            acted = actor.act(policy, observation, arrival.numbers, arrival.ages)
            actions = collector.add(t, acted, self._engine.version)
        if not self._stays:
            self._engine.release_memory()
        return actions

    def _finished(self, half: int, arrival: Arrival) -> Segment:
        """The values of what follows, and of what episodes were cut off at."""
        actor, collector = self._actors[half], self._collectors[half]
        last = collector.take(self._steps, arrival, actor.seen(arrival.observation, arrival.tasks))
        cut = collector.cut_off()
        self._engine.resume_memory(self._device)
        with self._engine.acting() as policy:
            values = self._values(policy, collector.seen() if collector.lacks_values else last)
            finals = np.empty(0, np.float32) if cut is None else self._values(policy, actor.seen(*cut))
        return collector.segment(values, finals)

    def _values(self, policy: Policy, observation: Observation) -> NDArray[np.float32]:
        """A part at a time."""
        count = next(iter(named(observation).values())).shape[0]
        parts = [policy.values(tensors(part(observation, slice(first, first + ROWS)), self._device)).cpu().numpy()
                 for first in range(0, count, ROWS)]
        return np.concatenate(parts)

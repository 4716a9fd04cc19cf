"""The environment role: steps simulators as the policy says."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.environment import Start
from rlinf_cli.flow.exchange import Address
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker
from rlinf_cli.rl.segment import Episode
from rlinf_cli.workers.environments.build import build_environment, chunk_of
from rlinf_cli.workers.environments.here import lend
from rlinf_cli.workers.environments.partition import Partition
from rlinf_cli.workers.environments.pool import Pool
from rlinf_cli.workers.environments.recording import Recorder
from rlinf_cli.workers.environments.serving import Serving, watching
from rlinf_cli.workers.environments.simulators import Simulators
from rlinf_cli.workers.environments.starts import EvaluationPlan, TrainingPlan, evaluation_starts

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group


class EnvironmentWorker(Worker):
    """One rank: an equal part of the environments, whose episodes go on from step to step."""

    def __init__(self, config: RunConfig, beside: bool = False) -> None:
        """`beside`: the policy is in the same process."""
        self._config, self._beside = config, beside
        self._environment = build_environment(config)
        self._chunk = chunk_of(config)
        self._tasks = {task: place for place, task in enumerate(self._environment.tasks())}
        count = config.env.count // self.world
        first = self.rank * count
        self._plan = TrainingPlan(config, self._environment, first, count)
        self._simulators = Simulators(self._pool(count, halves_of(config, beside)), self._plan, self._tasks, first, count)
        self._serving = Serving(self.rank, self._simulators, self._chunk)

    def interact(self, actions: In[Address], observations: Out[list[Episode]], rollout: Group, step: int) -> None:
        """Do what a policy says, for as long as it says something. Its ranks say in `actions` where they are to be met; there,
        or in this process, actions and observations change hands. What has become of episodes is told in `observations`."""
        if not self._simulators.is_under_way or self._begins_anew(step):
            self._plan.begin(step)
            self._simulators.begin()
        if self._beside:
            lend(self.role, self._simulators, watching(actions))
            return
        partition = Partition(self._config.env.count, len(self._simulators.halves), self.world, rollout.size)
        self._serving.serve(partition, actions)
        told = self._simulators.take_episodes()
        for place, acting in enumerate(partition.actors_of(self.rank)):
            observations.put(told if place == 0 else [], key=str(acting))

    def show(self, actions: In[Address], observations: Out[list[Episode]], rollout: Group, episodes: Out[list[Episode]]) -> None:
        """An evaluation's episodes, each once, by this rank every so manieth of them. The episodes of training stay as they
        are, and so do their environments."""
        starts = evaluation_starts(self._config, self._environment)
        mine, count = starts[self.rank :: self.world], evaluated_at_once(self._config, self.world, rollout.size)
        record = self._config.eval.record
        simulators = Simulators(self._pool(count, 1, record > 0), EvaluationPlan(mine, starts[0].start), self._tasks,
                                self.rank * count, count, len(mine), Recorder(record) if record else None)
        serving = Serving(self.rank, simulators, self._chunk)
        try:
            simulators.begin()
            if self._beside:
                lend(self.role, simulators, watching(actions))
            else:
                serving.serve(Partition(count * self.world, 1, self.world, rollout.size), actions)
            episodes.put(simulators.take_episodes())
        finally:
            serving.close()
            simulators.close()

    def close(self) -> None:
        self._serving.close()
        self._simulators.close()

    def _begins_anew(self, step: int) -> bool:
        """Where the same numbers are asked for, also after a checkpoint: a run that goes on from there has no episode under
        way."""
        every = self._config.checkpoint.every
        return self._config.env.episodes == "anew" or (self._config.deterministic and every > 0 and step % every == 0)

    def _pool(self, count: int, halves: int, images: bool = False) -> Callable[[Callable[[int], Start]], Pool]:
        processes = min(self._config.env.processes, count // halves)
        return lambda ask: Pool(self._environment, count, processes, self.device, ask, halves=halves, chunk=self._chunk,
                                images=images)


def evaluated_at_once(config: RunConfig, simulating: int, acting: int) -> int:
    """Environments of an evaluation on each of so many ranks: `eval.parallel`, or as many more as can be shared out among the
    ranks of the policy."""
    count = config.eval.parallel
    while count * simulating % acting:
        count += 1
    return count


def halves_of(config: RunConfig, beside: bool) -> int:
    """In how many parts the environments take turns with the policy. `beside`: both are in one process."""
    return config.env.halves or (1 if beside and config.env.processes == 1 else 2)

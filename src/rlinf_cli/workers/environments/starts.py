"""Which episodes environments go through: how each begins is a function of its numbers, never of who steps it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.environment import Environment, Start
from rlinf_cli.errors import UsageError

TRIALS = 100
"""Episodes that are evaluated of a task whose initial states are drawn from the seed."""
_EVALUATION = 0x6576616C


@dataclass(frozen=True, slots=True)
class Numbered:
    """An episode that is to begin. `number`: as in `Episode.number`; -1: of nothing that counts."""

    number: int
    start: Start
    group: str = ""


class Plan(Protocol):
    """What a rank's environments, numbered from 0, go through."""

    def following(self, environment: int) -> Numbered:
        """The environment's next episode."""
        ...

    def again(self, environment: int, lost: Numbered) -> None:
        """An episode was lost with its simulator."""
        ...


class TrainingPlan:
    """Episode k of environment i: task, state and seed are functions of (the run's seed, i's group, k). `first`: number within
    the run of this rank's first environment."""

    def __init__(self, config: RunConfig, environment: Environment, first: int, count: int) -> None:
        self._seed, self._group, self._first = config.seed, config.env.group, first
        self._tasks = [(task, environment.states(task)) for task in environment.tasks()]
        self._groups = -(-config.env.count // config.env.group)
        self._longest = config.rollout.steps + 1
        self._numbers = [0] * count

    def begin(self, step: int) -> None:
        """All begin anew with a step, with numbers that no episode of an earlier step can have had."""
        self._numbers = [step * self._longest] * len(self._numbers)

    def following(self, environment: int) -> Numbered:
        number = self._numbers[environment]
        self._numbers[environment] += 1
        group = (self._first + environment) // self._group
        return Numbered(number, self._start(group, number), f"{group}-{number}")

    def again(self, environment: int, lost: Numbered) -> None:
        """There are others."""

    def _start(self, group: int, number: int) -> Start:
        task, states = self._tasks[(group + number * self._groups) % len(self._tasks)]
        seed, drawn = (int(word) for word in np.random.SeedSequence([self._seed, group, number]).generate_state(2))
        return Start(seed, task, drawn % states if states else -1)


class EvaluationPlan:
    """Each of the starts once, by whichever environment is free; `number` is its place among them."""

    def __init__(self, starts: Sequence[Numbered], idle: Start) -> None:
        """`idle`: how episodes begin that count for nothing, while others are still under way."""
        self._left, self._idle = deque(starts), Numbered(-1, idle)

    def following(self, environment: int) -> Numbered:
        return self._left.popleft() if self._left else self._idle

    def again(self, environment: int, lost: Numbered) -> None:
        if lost.number >= 0:
            self._left.appendleft(lost)


def evaluation_starts(config: RunConfig, environment: Environment) -> list[Numbered]:
    """Every (task, initial state) pair once, or as `eval.episodes` says, in a fixed order."""
    found = [start for task in environment.tasks() for start in _trials(config, environment, task)]
    return [Numbered(number, start, f"{start.task}-{start.state}-{start.seed}") for number, start in enumerate(found)]


def _trials(config: RunConfig, environment: Environment, task: str) -> list[Start]:
    """Seeds of an evaluation are other ones than those of training, and the same in each evaluation of a run's seed."""
    states = environment.states(task)
    count = config.eval.episodes or states or TRIALS
    if states and count > states and count % states:
        raise UsageError(f"eval.episodes={count} (from {config.origin('eval.episodes')}): task '{task}' has {states} initial "
                         f"states, so that some would come more often than others: give at most {states}, or a multiple of it")
    seeds = np.random.SeedSequence([config.seed, _EVALUATION]).generate_state(count).tolist()
    return [Start(seed, task, trial % states if states else -1) for trial, seed in enumerate(seeds)]


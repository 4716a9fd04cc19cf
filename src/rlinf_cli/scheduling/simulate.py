"""What an iteration of a plan takes: batch after batch goes through the stages, until the long run shows.

Synchronous: a batch begins when the one before it has been trained and its weights have arrived. Asynchronous, where generation
and training have no device in common: a batch begins when the one S + 1 before it has, and generation does not stop between.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.continuous import Continuous
from rlinf_cli.scheduling.costs import device_groups, extrapolated, group_memory
from rlinf_cli.scheduling.pipeline import Iteration, Pipeline
from rlinf_cli.scheduling.plan import Plan, Prediction
from rlinf_cli.scheduling.problem import Decoding, Problem, Stage

DRAWN = 2000
"""Samples that small batches are drawn to have together, so that one of them decides nothing."""
MOST_BATCHES = 500
WARM = 3
"""Batches, more than may be open at once, after which the long run has begun."""


def predict(problem: Problem, plan: Plan) -> Prediction:
    """Seconds of an iteration in the long run, and where they go."""
    batches = list(_batches(problem, plan))
    ahead = leading(problem, plan)
    times = Asynchronous(problem, plan, ahead).run(batches) if ahead is not None else synchronous(problem, plan, batches)
    return _prediction(problem, plan, times)


@dataclass(frozen=True)
class Times:
    """Of some batches after each other, in the long run. `ends`: when each batch's weights are there, with that of the batch
    before the first one in front [batches + 1]."""

    iterations: list[Iteration]
    ends: list[float]
    tail: float = 0.0
    """Share of the time in which generation was at less than half of its slots."""

    @property
    def step_s(self) -> float:
        return (self.ends[-1] - self.ends[0]) / len(self.iterations)


def leading(problem: Problem, plan: Plan) -> Stage | None:
    """What generates, if it may run ahead of training: it has devices of its own. None where the plan is synchronous."""
    source = next((stage for stage in problem.stages if isinstance(stage.cost, Decoding)), None)
    if source is None or source.after or not min(plan.staleness, problem.staleness):
        return None
    mine = set(plan.devices[source.name])
    others = (set(plan.devices[stage.name]) for stage in problem.stages if stage is not source)
    return source if all(mine.isdisjoint(other) for other in others) else None


def synchronous(problem: Problem, plan: Plan, batches: list[NDArray[np.int64]]) -> Times:
    pipeline = Pipeline(problem, plan)
    iterations, ends = [], [0.0]
    for lengths in batches:
        found = pipeline.run(lengths, ends[-1])
        iterations.append(found)
        ends.append(max(found.end.values()) + problem.sync_s + problem.step_s)
    # in the first one no device had to change hands
    kept = slice(1, None)
    tail = float(np.mean([_tail(problem, found) for found in iterations[kept]]))
    return Times(iterations[kept], ends[1:], tail)


class Asynchronous:
    """A plan in which `source` generates ahead of training."""

    def __init__(self, problem: Problem, plan: Plan, source: Stage) -> None:
        assert isinstance(source.cost, Decoding)
        self._problem, self._source = problem, source
        self._ahead = min(plan.staleness, problem.staleness)
        self._pipeline = Pipeline(problem, plan)
        self._replicas = max(1, len(plan.devices[source.name]) // source.cost.devices_per_replica)
        self._continuous = Continuous(source.cost, self._replicas, problem.group)

    def run(self, batches: list[NDArray[np.int64]]) -> Times:
        iterations, ends = [], [0.0]
        for number in range(min(self._ahead + 1, len(batches))):
            self._continuous.give(number, batches[number], 0.0)
        for number, lengths in enumerate(batches):
            done = self._pipeline.grouped(self._continuous.finish(number))
            found = self._pipeline.run(lengths, ends[-1], {self._source.name: done})
            ends.append(max(max(found.end.values()), ends[-1]) + self._problem.sync_s)
            iterations.append(found)
            following = number + self._ahead + 1
            if following < len(batches):
                self._continuous.give(following, batches[following], ends[-1])
        return self._steady(iterations, ends)

    def _steady(self, iterations: list[Iteration], ends: list[float]) -> Times:
        """Without the first batches, which find everything empty, and the last, behind which nothing comes."""
        first, last = self._ahead + WARM, len(iterations) - self._ahead
        found = Times(iterations[first:last], ends[first : last + 1])
        busy = self._continuous.active_s / self._replicas / len(iterations)
        for one in iterations:
            one.compute[self._source.name] = min(busy, found.step_s)
        return found


def _batches(problem: Problem, plan: Plan) -> Iterator[NDArray[np.int64]]:
    """Lengths of batches: as many as tell the long run."""
    ahead = min(plan.staleness, problem.staleness)
    extra = 1 if leading(problem, plan) is None else 2 * ahead + WARM
    if problem.pool is None:
        count = 1 if extra == 1 else 2 * (ahead + 1)
        yield from [problem.lengths] * (extra + count)
        return
    draw = np.random.default_rng(0)
    groups = problem.pool[: len(problem.pool) // problem.group * problem.group].reshape(-1, problem.group)
    for _ in range(extra + min(MOST_BATCHES, -(-DRAWN // problem.samples) + 1)):
        yield groups[draw.integers(0, len(groups), problem.samples // problem.group)].ravel()


def _tail(problem: Problem, found: Iteration) -> float:
    """Share of an iteration in which fewer than half of the most responses of the source were active."""
    source = problem.stages[0]
    if not isinstance(source.cost, Decoding):
        return 0.0
    ends = np.sort(found.done[source.name])
    half = ends[len(ends) // 2 :]
    full = half[max(0, len(half) - source.cost.slots // 2 - 1)] if len(half) > source.cost.slots // 2 else half[0]
    return float((ends[-1] - full) / (max(found.end.values()) - found.begin[source.name]))


def _prediction(problem: Problem, plan: Plan, times: Times) -> Prediction:
    stages = {stage.name: float(np.mean([one.compute[stage.name] for one in times.iterations])) for stage in problem.stages}
    busy = {"+".join(users): _states(problem, times, stages, users) for _, users in device_groups(plan.tree)}
    return Prediction(times.step_s, stages, busy, group_memory(problem, plan.tree), _bound_by(problem, times, stages, busy),
                      extrapolated(problem, plan.tree), problem.source)


def _states(problem: Problem, times: Times, stages: Mapping[str, float], users: tuple[str, ...]) -> dict[str, float]:
    """Seconds of each state of the devices that these stages use."""
    states = {name: stages[name] for name in users}
    states["switch"] = float(np.mean([sum(one.switch[name] for name in users) for one in times.iterations]))
    waits = any(problem.stage(name).trains or isinstance(problem.stage(name).cost, Decoding) for name in users)
    states["sync"] = min(problem.sync_s, max(0.0, times.step_s - sum(states.values()))) if waits else 0.0
    states["idle"] = max(0.0, times.step_s - sum(states.values()))
    return states


def _bound_by(problem: Problem, times: Times, stages: Mapping[str, float], busy: Mapping[str, Mapping[str, float]]) -> str:
    """What takes most of an iteration."""
    source = problem.stages[0].name
    if times.tail > 0.25:
        return f"{source} tail {times.tail:.0%}"
    name = max(stages, key=lambda name: stages[name])
    idle = min((states["idle"] for states in busy.values()), default=0.0) / times.step_s
    return f"{name} {stages[name] / times.step_s:.0%}" + (f", idle {idle:.0%}" if idle > 0.1 else "")

"""What an iteration of a plan takes: batch after batch goes through the stages, until the long run shows.

Synchronous: a batch begins when the one before it has been trained and its weights have arrived. Asynchronous, where generation
and training have no device in common: a batch begins when the one S + 1 before it has. Where generation has devices of its own,
it does not stop between two batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.continuous import Continuous
from rlinf_cli.scheduling.costs import device_groups, extrapolated, group_memory
from rlinf_cli.scheduling.generation import Floats
from rlinf_cli.scheduling.pipeline import Iteration, Pipeline, Station
from rlinf_cli.scheduling.plan import Plan, Prediction
from rlinf_cli.scheduling.problem import Decoding, Problem

Ints: TypeAlias = NDArray[np.int64]

DRAWN = 2000
"""Samples that small batches are drawn to have together, so that one of them decides nothing."""
MOST_BATCHES = 500
WARM = 3
"""Batches, more than may be open at once, after which the long run has begun."""


def predict(problem: Problem, plan: Plan) -> Prediction:
    """Seconds of an iteration in the long run, and where they go."""
    pipeline = Pipeline(problem, plan)
    ahead = steps_ahead(pipeline)
    times = _iterate(pipeline, ahead, list(batches(problem, enough(problem, ahead))))
    return _prediction(pipeline.problem, plan, times)


def replay(problem: Problem, plan: Plan, lengths: Sequence[Ints]) -> list[float]:
    """Seconds of each of these batches, one after the other [as `lengths`]: from the time at which the weights of the one before
    it are there, or the begin, to when its own are. `lengths`: tokens of the responses of each, in the order of the prompts."""
    pipeline = Pipeline(problem, plan)
    _, ends = _ends(pipeline, steps_ahead(pipeline), list(lengths))
    return [after - before for before, after in pairwise(ends)]


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


# ---- shared with the simulation of events ----


def steps_ahead(pipeline: Pipeline) -> int:
    """By how many steps generation runs ahead of training: by none where the two have a device in common."""
    generation = [station for station in pipeline.stations if isinstance(station.stages[0].cost, Decoding)]
    training = [station for station in pipeline.stations if any(stage.trains for stage in station.stages)]
    apart = generation and training and not any(one.shares(other) for one in generation for other in training)
    return min(pipeline.plan.staleness, pipeline.problem.staleness) if apart else 0


def continuous_source(pipeline: Pipeline, ahead: int) -> Station | None:
    """What generates without pause from one step to the next: it runs ahead, on devices that nobody else uses."""
    source = pipeline.stations[0]
    alone = ahead and not source.inputs and not pipeline.rivals[source]
    return source if alone and isinstance(source.stages[0].cost, Decoding) else None


def publisher_of(pipeline: Pipeline) -> Station | None:
    """Whose weights generation waits for: of several that train, a workflow has the policy do so last."""
    return next((station for station in pipeline.stations[::-1] if any(stage.trains for stage in station.stages)), None)


def engine(problem: Problem, source: Station) -> Continuous:
    """The replicas of a continuous source."""
    cost = source.stages[0].cost
    assert isinstance(cost, Decoding)
    return Continuous(cost, max(1, len(source.places[source.name]) // cost.devices_per_replica), problem.group)


def batches(problem: Problem, count: int) -> Iterator[Ints]:
    """Lengths of so many batches; the first ones are the same for every count."""
    if problem.pool is None:
        yield from [problem.lengths] * count
        return
    draw = np.random.default_rng(0)
    groups = problem.pool[: len(problem.pool) // problem.group * problem.group].reshape(-1, problem.group)
    for _ in range(count):
        yield groups[draw.integers(0, len(groups), problem.samples // problem.group)].ravel()


def steady(ahead: int, count: int) -> slice:
    """Of so many batches those that tell the long run: not the first, which find everything empty, nor the last of those that
    run ahead, behind which nothing comes. All but the first where there are too few for that."""
    first, last = (ahead + WARM, count - ahead) if ahead else (1, count)
    return slice(first, last) if first < last else slice(min(1, count - 1), count)


# ---- iterations ----


def enough(problem: Problem, ahead: int) -> int:
    """Batches that tell the long run."""
    extra = 2 * ahead + WARM if ahead else 1
    if problem.pool is None:
        return extra + (2 * (ahead + 1) if ahead else 1)
    return extra + min(MOST_BATCHES, -(-DRAWN // problem.samples) + 1)


def _iterate(pipeline: Pipeline, ahead: int, lengths: list[Ints]) -> Times:
    if source := continuous_source(pipeline, ahead):
        return _Continuous(pipeline, ahead, source).times(lengths)
    return _times(pipeline, ahead, *_run(pipeline, ahead, lengths))


def _ends(pipeline: Pipeline, ahead: int, lengths: list[Ints]) -> tuple[list[Iteration], list[float]]:
    """Each batch, and when its weights are there, after 0 for the begin."""
    if source := continuous_source(pipeline, ahead):
        return _Continuous(pipeline, ahead, source).run(lengths)
    return _run(pipeline, ahead, lengths)


def _run(pipeline: Pipeline, ahead: int, lengths: list[Ints]) -> tuple[list[Iteration], list[float]]:
    problem = pipeline.problem
    iterations, ends = [], [0.0]
    for number, batch in enumerate(lengths):
        found = pipeline.run(batch, ends[max(0, number - ahead)])
        ends.append(_end(pipeline, found, ends[-1]) + (0.0 if ahead else problem.step_s))
        iterations.append(found)
    return iterations, ends


def _end(pipeline: Pipeline, found: Iteration, before: float) -> float:
    """When the weights of a batch are there, for which the trainer keeps its devices."""
    end = max(max(found.end.values()), before) + pipeline.problem.sync_s
    if publisher := publisher_of(pipeline):
        pipeline.hold(publisher, end)
    return end


class _Continuous:
    """Iterations of a plan whose `source` generates without pause."""

    def __init__(self, pipeline: Pipeline, ahead: int, source: Station) -> None:
        self._pipeline, self._ahead, self._name = pipeline, ahead, source.name
        self._engine = engine(pipeline.problem, source)
        self._replicas = self._engine.replicas

    def run(self, lengths: list[Ints]) -> tuple[list[Iteration], list[float]]:
        iterations: list[Iteration] = []
        ends, begins = [0.0], [0.0] * (self._ahead + 1)
        for number in range(min(self._ahead + 1, len(lengths))):
            self._engine.give(number, lengths[number], 0.0)
        for number, batch in enumerate(lengths):
            done = self._pipeline.grouped(self._engine.finish(number))
            found = self._pipeline.run(batch, begins[number], {self._name: done})
            ends.append(_end(self._pipeline, found, ends[-1]))
            begins.append(ends[-1])
            iterations.append(found)
            if len(begins) <= len(lengths):
                self._engine.give(len(begins) - 1, lengths[len(begins) - 1], ends[-1])
        return iterations, ends

    def times(self, lengths: list[Ints]) -> Times:
        iterations, ends = self.run(lengths)
        times = _times(self._pipeline, self._ahead, iterations, ends)
        busy = self._engine.active_s / self._replicas / len(iterations)
        for one in times.iterations:
            one.compute[self._name] = min(busy, times.step_s)
        return times


def _times(pipeline: Pipeline, ahead: int, iterations: list[Iteration], ends: list[float]) -> Times:
    kept = steady(ahead, len(iterations))
    shown = iterations[kept]
    tail = 0.0 if ahead else float(np.mean([_tail(pipeline.problem, found) for found in shown]))
    return Times(shown, ends[kept.start : kept.stop + 1], tail)


def _tail(problem: Problem, found: Iteration) -> float:
    """Share of an iteration in which fewer than half of the most responses of the source were active."""
    source = problem.stages[0]
    if not isinstance(source.cost, Decoding):
        return 0.0
    ends = np.sort(found.done[source.name])
    return float(_draining(ends, source.cost.slots) / (max(found.end.values()) - found.begin[source.name]))


def _draining(ends: Floats, slots: int) -> float:
    """Seconds in which the last responses of sorted `ends` end."""
    half = ends[len(ends) // 2 :]
    full = half[-(slots // 2) - 1] if len(half) > slots // 2 else half[0]
    return float(ends[-1] - full)


# ---- what is said of them ----


def _prediction(problem: Problem, plan: Plan, times: Times) -> Prediction:
    stages = {stage.name: float(np.mean([one.compute[stage.name] for one in times.iterations])) for stage in problem.stages}
    busy = {"+".join(users): _states(problem, times, stages, users) for _, users in device_groups(plan.tree)}
    return Prediction(times.step_s, stages, busy, group_memory(problem, plan.tree), _bound_by(problem, times, stages, busy),
                      extrapolated(problem, plan.tree), problem.source)


def _states(problem: Problem, times: Times, stages: Mapping[str, float], users: tuple[str, ...]) -> dict[str, float]:
    """Seconds of each state of the devices that these stages use."""
    states = {name: stages[name] for name in users}
    states["switch"] = float(np.mean([sum(one.switch.get(name, 0.0) for name in users) for one in times.iterations]))
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

"""A plan, event by event: a driver issues the calls of each step as a workflow does, simulated workers execute them, and the
device lock, the channels and the staleness gate are those of a real run.

Ranks of a role do the same at the same time: one stands for all of them. What `simulate.predict` computes batch by batch comes
out here as events, with what each device did when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, TypeAlias

import numpy as np

from rlinf_cli.scheduling.continuous import Continuous
from rlinf_cli.scheduling.costs import device_groups, ranks_of, service
from rlinf_cli.scheduling.generation import finish_times
from rlinf_cli.scheduling.pipeline import Pipeline, Station
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Decoding, Problem
from rlinf_cli.scheduling.simulate import Ints, batches, continuous_source, engine, enough, publisher_of, steady, steps_ahead
from rlinf_cli.scheduling.simulate_world import Process, Signal, Take, Turn, Until, World
from rlinf_cli.scheduling.tree import Tree
from rlinf_cli.state.staleness import Ended, StalenessGate, Started

State: TypeAlias = Literal["compute", "switch", "sync"]


@dataclass(frozen=True)
class Span:
    """What a stage did from one time to another, in seconds since the beginning."""

    stage: str
    step: int
    state: State
    began: float
    ended: float


@dataclass(frozen=True)
class Simulation:
    """Of some steps. `ends`: when each one's weights were there."""

    ends: Sequence[float]
    spans: Sequence[Span] = field(repr=False)
    kept: slice
    """The steps that tell the long run."""

    @property
    def step_s(self) -> float:
        """Seconds of a step in the long run."""
        first, last = self._window
        return (last - first) / len(self.ends[self.kept])

    @property
    def _window(self) -> tuple[float, float]:
        return (0.0, *self.ends)[self.kept.start], self.ends[self.kept.stop - 1]

    def busy(self, tree: Tree) -> dict[str, dict[str, float]]:
        """Device group -> state -> seconds of a step in the long run; they add up to `step_s`."""
        steps = len(self.ends[self.kept])
        return {"+".join(users): {state: seconds / steps for state, seconds in self._states(users).items()}
                for _, users in device_groups(tree)}

    def _states(self, users: Sequence[str]) -> dict[str, float]:
        first, last = self._window
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in (*users, "switch", "sync")}
        for span in self.spans:
            if span.stage in users and span.ended > first and span.began < last:
                state = span.stage if span.state == "compute" else span.state
                found[state].append((max(first, span.began), min(last, span.ended)))
        states = {state: _covered(times) for state, times in found.items()}
        return states | {"idle": max(0.0, last - first - sum(states.values()))}


def run(problem: Problem, plan: Plan, iterations: int = 0) -> Simulation:
    """Execute so many iterations of a plan; 0: as many as a prediction takes."""
    pipeline = Pipeline(problem, plan)
    return _Run(pipeline, iterations or enough(problem, steps_ahead(pipeline))).run()


@dataclass(eq=False)
class _Call:
    """Of a station in a step."""

    station: Station
    step: int
    ticket: int
    before: Signal
    """The call before it of the same station has ended."""
    ended: Signal
    trained: float = 0.0
    """When the samples that it has begun to train have been, at the earliest."""


_Cost: TypeAlias = tuple[float, list[float], float]
"""Of a stage: seconds of a chunk, of each sample, and once."""


class _Run:
    def __init__(self, pipeline: Pipeline, iterations: int) -> None:
        problem = self._problem = pipeline.problem
        self._pipeline, self._ahead = pipeline, steps_ahead(pipeline)
        self._lengths = list(batches(problem, iterations))
        pipeline.run(self._lengths[0], 0.0)  # how much is taken at once shows in the first batch
        self._world = World(self._switch)
        self._gate, self._tickets = StalenessGate(self._ahead), count(1)
        self._consumers = {stage.name: _consumers(pipeline, stage.name) for stage in problem.stages}
        self._latest: dict[Station, Signal] = {}
        self._station_of = {stage.name: station for station in pipeline.stations for stage in station.stages}
        self._named = {station.name: station for station in pipeline.stations}
        self._spans: list[Span] = []
        self._ends: list[float] = []
        self._moved = Signal()
        source = continuous_source(pipeline, self._ahead)
        self._continuous = _Engine(self, source) if source else None
        for station in pipeline.stations:
            self._world.enrol(station.name, _segments(pipeline, station), station.stages[0].weights or station.name)

    def run(self) -> Simulation:
        self._world.start(self._drive())
        self._world.run()
        return Simulation(self._ends, _merged(self._spans), steady(self._ahead, len(self._ends)))

    @property
    def world(self) -> World:
        return self._world

    def note(self, stage: str, step: int, state: State, began: float, ended: float) -> None:
        if ended > began:
            self._spans.append(Span(stage, step, state, began, ended))

    def _switch(self, before: str, after: str) -> float:
        return self._problem.switch(self._named[before].stages[-1], self._named[after].stages[0])

    # ---- the driver ----

    def _drive(self) -> Process:
        for step in range(len(self._lengths)):
            while not self._gate.may_start():
                self._moved = Signal()
                yield self._moved
            if step and not self._ahead:
                yield Until(self._world.now + self._problem.step_s)
            self._gate.handle(Started(step))
            self._world.feed(_channel(step, "prompts", ""))
            calls = [self._issue(station, step) for station in self._pipeline.stations]
            publisher = publisher_of(self._pipeline)
            self._world.start(self._finish(step, calls, self._call(publisher, step, (), ()) if publisher else None))

    def _issue(self, station: Station, step: int) -> Signal:
        ins = [_channel(step, name, station.name) for name in station.inputs] or [_channel(step, "prompts", "")]
        outs = [_channel(step, stage.name, consumer.name) for stage in station.stages for consumer in self._consumers[stage.name]]
        call = self._call(station, step, ins, outs)
        self._world.start(self._work(call))
        return call.ended

    def _call(self, station: Station, step: int, ins: Sequence[str], outs: Sequence[str]) -> _Call:
        before = self._latest.get(station, Signal(is_set=True))
        if self._continuous and station is self._continuous.source:
            before = Signal(is_set=True)  # calls of generation overlap
        call = _Call(station, step, next(self._tickets), before, Signal())
        self._latest[station] = call.ended
        if _needs_devices(station):
            self._world.issue(call.ticket, station.name, ins, outs)
        else:
            self._world.derive(ins, outs)
        return call

    def _finish(self, step: int, calls: Sequence[Signal], publishing: _Call | None) -> Process:
        """New weights, when all of the step has ended, and all of the one before it."""
        yield from calls
        if publishing:
            yield publishing.before
            if _needs_devices(publishing.station):
                yield Turn(publishing.ticket, publishing.station.name)
        began = self._world.now
        yield Until(began + self._problem.sync_s)
        self._published(step, publishing, began)

    def _published(self, step: int, publishing: _Call | None, began: float) -> None:
        receivers = [] if self._ahead else [stage.name for stage in self._problem.stages if isinstance(stage.cost, Decoding)]
        for name in [*receivers, *(stage.name for stage in (publishing.station.stages if publishing else ()) if stage.trains)]:
            self.note(name, step, "sync", began, self._world.now)
        if publishing:
            self._end(publishing)
        self._ends.append(self._world.now)
        self._gate.handle(Ended(step))
        if not self._moved.is_set:
            self._world.set(self._moved)

    # ---- workers ----

    def _work(self, call: _Call) -> Process:
        station, world = call.station, self._world
        yield call.before
        if _needs_devices(station):
            switch_s = yield Turn(call.ticket, station.name)
            self.note(station.stages[0].name, call.step, "switch", world.now - switch_s, world.now)
        if self._continuous and station is self._continuous.source:
            yield self._continuous.give(call.step, self._lengths[call.step])
        elif isinstance(station.stages[0].cost, Decoding):
            yield from self._generate(call, station.stages[0].cost)
        else:
            yield from self._batch(call)
        self._close(call)
        self._end(call)

    def _end(self, call: _Call) -> None:
        if _needs_devices(call.station):
            self._world.release(call.ticket, call.station.name)
        self._world.set(call.ended)

    def _generate(self, call: _Call, cost: Decoding) -> Process:
        """Groups leave as they end; for what generates one batch at a time."""
        station, lengths = call.station, self._lengths[call.step]
        for name in station.inputs:
            yield Take(station.name, _channel(call.step, name, station.name), len(lengths))
        began = self._world.now
        replicas = max(1, len(station.places[station.name]) // cost.devices_per_replica)
        done = finish_times(cost, lengths, replicas, self._problem.dealing, self._problem.group)
        ends = np.maximum.reduceat(done, np.arange(0, len(done), self._problem.group))
        for group in np.argsort(ends, kind="stable").tolist():
            yield Until(began + float(ends[group]))
            self.hand_on(station.name, call.step, self.samples(group))
        self.note(station.name, call.step, "compute", began, self._world.now)

    def samples(self, group: int) -> list[int]:
        """Of a group."""
        size = self._problem.group
        return list(range(group * size, min((group + 1) * size, self._problem.samples)))

    def _batch(self, call: _Call) -> Process:
        """Chunk after chunk, each through all stages of the station."""
        station, left, costs = call.station, self._problem.samples, _costs(call.station, self._lengths[call.step])
        size = self._problem.samples if self._pipeline.waits(station) else self._pipeline.sizes[station]
        while left:
            taken = [] if station.inputs else list(range(left))
            for name in station.inputs:
                taken = yield Take(station.name, _channel(call.step, name, station.name), size)
            left -= len(taken)
            for chunk in _cut(taken, self._pipeline.sizes[station]):
                yield from self._chunk(call, chunk, costs, is_last=not left and chunk[-1] == taken[-1])
        if call.trained > self.world.now:
            yield Until(call.trained)

    def _chunk(self, call: _Call, chunk: list[int], costs: Sequence[_Cost], is_last: bool) -> Process:
        for stage, (fixed, each, once) in zip(call.station.stages, costs, strict=True):
            began = self._world.now
            if stage.trains and self._problem.whole_samples:
                ranks = ranks_of(stage, len(call.station.places[stage.name]))
                call.trained = max(call.trained, began + fixed + max(each[sample] for sample in chunk) * ranks + once)
            yield Until(began + fixed + sum(each[sample] for sample in chunk) + (once if is_last else 0.0))
            self.note(stage.name, call.step, "compute", began, self._world.now)
            self.hand_on(stage.name, call.step, chunk)

    def hand_on(self, stage: str, step: int, samples: list[int]) -> None:
        for station, delay in self._consumers[stage].items():
            self._world.put(self._station_of[stage].name, _channel(step, stage, station.name), samples, delay)

    def _close(self, call: _Call) -> None:
        for stage in call.station.stages:
            for station, delay in self._consumers[stage.name].items():
                self._world.close(_channel(call.step, stage.name, station.name), delay)


class _Engine:
    """Generation that goes on from one step to the next."""

    def __init__(self, run: _Run, source: Station) -> None:
        self.source, self._run = source, run
        self._engine: Continuous = engine(run._problem, source)
        self._began: dict[int, float] = {}
        self._left: dict[int, list[int]] = {}
        """Step -> responses of each group that are not done."""
        self._done: dict[int, Signal] = {}
        self._due = float("inf")

    def give(self, step: int, lengths: Ints) -> Signal:
        """Set when the step is done."""
        self._began[step], self._done[step] = self._run.world.now, Signal()
        self._left[step] = [len(self._run.samples(group)) for group in range(-(-len(lengths) // self._run._problem.group))]
        self._engine.give(step, lengths, self._run.world.now)
        self._expect()
        return self._done[step]

    def _expect(self) -> None:
        at = self._engine.next_at
        if at < self._due:
            self._due = at
            self._run.world.at(at, lambda: self._pump(at))

    def _pump(self, due: float) -> None:
        if due != self._due:
            return  # something else came before it
        while self._engine.next_at <= due:
            for step, sample in self._engine.event():
                self._ended(step, sample)
        self._due = float("inf")
        self._expect()

    def _ended(self, step: int, sample: int) -> None:
        group, left = sample // self._run._problem.group, self._left[step]
        left[group] -= 1
        if left[group] == 0:
            self._run.hand_on(self.source.name, step, self._run.samples(group))
        if not any(left):
            now = self._run.world.now
            self._run.note(self.source.name, step, "compute", self._began[step], now)
            self._run.world.set(self._done[step])


def _consumers(pipeline: Pipeline, stage: str) -> dict[Station, float]:
    """Stations that take what a stage makes, and seconds for which it is under way to them."""
    transfer = pipeline.problem.transfer_s
    return {station: max(transfer.get((stage, other.name), 0.0) for other in station.stages if stage in other.after)
            for station in pipeline.stations if stage in station.inputs}


def _costs(station: Station, lengths: Ints) -> list[_Cost]:
    costs = [service(stage, len(station.places[stage.name]), lengths) for stage in station.stages]
    return [(fixed, each.tolist(), once) for fixed, each, once in costs]


def _channel(step: int, producer: str, consumer: str) -> str:
    return f"step_{step}/{producer}>{consumer}"


def _needs_devices(station: Station) -> bool:
    return any(station.places.values())


def _segments(pipeline: Pipeline, station: Station) -> list[int]:
    """The devices of a station; those that the same stations use count as one."""
    groups = device_groups(pipeline.plan.tree)
    return [place for place, (_, users) in enumerate(groups) if any(stage.name in users for stage in station.stages)]


def _cut(samples: list[int], size: int) -> Iterator[list[int]]:
    for first in range(0, len(samples), size):
        yield samples[first : first + size]


def _merged(spans: Sequence[Span]) -> list[Span]:
    """Without the borders between what follows each other at once."""
    found: dict[tuple[str, int, str], list[Span]] = {}
    for span in spans:
        same = found.setdefault((span.stage, span.step, span.state), [])
        if same and abs(same[-1].ended - span.began) <= 1e-9:
            same[-1] = Span(span.stage, span.step, span.state, same[-1].began, span.ended)
        else:
            same.append(span)
    return sorted((span for same in found.values() for span in same), key=lambda span: (span.began, span.ended))


def _covered(times: Sequence[tuple[float, float]]) -> float:
    """Seconds in which at least one of some spans lasts."""
    seconds, reached = 0.0, float("-inf")
    for began, ended in sorted(times):
        seconds += max(0.0, ended - max(began, reached))
        reached = max(reached, ended)
    return seconds

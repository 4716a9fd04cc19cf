"""What happens to a batch in one iteration: stages that take items as they come, or a batch at a time, on devices of their own or
in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.costs import ranks_of, service
from rlinf_cli.scheduling.generation import Floats, expanded, finish_times
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Decoding, Problem, Stage
from rlinf_cli.scheduling.tree import InTurn, Leaf, Tree, leaves
from rlinf_cli.state.granularity import smallest


@dataclass
class Iteration:
    """Times of one batch."""

    done: dict[str, Floats] = field(default_factory=dict)
    """Stage -> when each sample leaves it [samples]."""
    begin: dict[str, float] = field(default_factory=dict)
    end: dict[str, float] = field(default_factory=dict)
    """When a stage gives its devices to the next."""
    compute: dict[str, float] = field(default_factory=dict)
    """Seconds for which a stage computes."""
    switch: dict[str, float] = field(default_factory=dict)
    """Seconds of the switch to a stage."""


@dataclass(frozen=True, eq=False)
class Station:
    """What holds devices at a time: a stage, or several that take turns within each chunk, so that one chunk is through all of
    them before the next one begins."""

    stages: tuple[Stage, ...]
    places: Mapping[str, range]

    @property
    def name(self) -> str:
        return "+".join(stage.name for stage in self.stages)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Stages of other stations whose items it takes."""
        mine = {stage.name for stage in self.stages}
        return tuple(dict.fromkeys(name for stage in self.stages for name in stage.after if name not in mine))

    @property
    def streams(self) -> bool:
        return all(stage.streams for stage in self.stages)

    def shares(self, other: Station) -> bool:
        """Whether the two have a device in common."""
        pairs = product(self.places.values(), other.places.values())
        return any(mine.start < its.stop and its.start < mine.stop for mine, its in pairs)

    def costs(self, lengths: NDArray[np.int64], ends: NDArray[np.int64]) -> Floats:
        """Seconds of each chunk in each stage [stages, chunks]; sample i is of length `lengths[i]`, chunk k ends before
        `ends[k]`."""
        rows = []
        for stage in self.stages:
            fixed, each, once = service(stage, len(self.places[stage.name]), lengths)
            row = np.diff(np.concatenate([[0.0], np.cumsum(each)])[np.concatenate([[0], ends])]) + fixed
            row[-1] += once
            rows.append(row)
        return np.array(rows)

    def trained(self, lengths: NDArray[np.int64], ends: NDArray[np.int64], begins: Floats) -> float:
        """When all samples of chunks that begin then have been trained, where each is on one rank: the others cannot help with
        the last one. Ends of chunks as in `costs`."""
        stage = self.stages[-1]
        fixed, each, once = service(stage, len(self.places[stage.name]), lengths)
        longest = np.maximum.reduceat(each, np.concatenate([[0], ends[:-1]])) * ranks_of(stage, len(self.places[stage.name]))
        return float((begins + fixed + longest).max()) + once


class Pipeline:
    """Of one plan. It remembers from batch to batch who had which devices until when."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.plan = problem.spread(plan.units), plan
        self.stations = stations(self.problem, plan)
        self.rivals = {station: [other for other in self.stations if other is not station and station.shares(other)]
                       for station in self.stations}
        self._free: dict[Station, float] = {}
        """Until when a station had its devices."""
        self._loaded = set(self.stations)
        """Those that have not made room for another: at first, as processes start with all that they need, none has."""
        self._room: dict[Station, float] = {}
        """When the others had made room."""
        self._latest: tuple[Decoding, int, NDArray[np.int64], Floats] | None = None
        self._served = np.zeros(0, np.int64)
        self.sizes: dict[Station, int] = {}
        """Samples that each takes at once, found with the first batch."""

    def run(self, lengths: NDArray[np.int64], begins: float, ahead: Mapping[str, Floats] | None = None) -> Iteration:
        """A batch that may begin at `begins`; the stages that `ahead` tells have been dealt with."""
        found = Iteration()
        for station in self.stations:
            done = (ahead or {}).get(station.name)
            if done is not None:
                self._note(found, station, begins, done[np.newaxis], [float(done.max()) - begins])
            else:
                self._serve(found, station, lengths, begins)
        return found

    def hold(self, station: Station, until: float) -> None:
        """It keeps its devices until then."""
        self._free[station] = until

    def grouped(self, done: Floats) -> Floats:
        """A group leaves when its last sample is done."""
        size = self.problem.group
        if size == 1:
            return done
        firsts = np.arange(0, len(done), size)
        ends: Floats = np.repeat(np.maximum.reduceat(done, firsts), np.diff([*firsts, len(done)]))
        return ends

    def waits(self, station: Station) -> bool:
        """Whether it begins with all of its batch: it needs that, or it trains on devices that generate."""
        makers = makers_of(self.problem, station.inputs)
        generates = any(stage.name in makers and isinstance(stage.cost, Decoding)
                        for rival in self.rivals[station] for stage in rival.stages)
        return not station.streams or (generates and any(stage.trains for stage in station.stages))

    def _serve(self, found: Iteration, station: Station, lengths: NDArray[np.int64], begins: float) -> None:
        start, switch = self._floor(station, begins)
        arrivals = self._arrivals(found, station, len(lengths), begins)
        cost = station.stages[0].cost
        if isinstance(cost, Decoding):
            start = max(start, float(arrivals.max()))
            replicas = max(1, len(station.places[station.name]) // cost.devices_per_replica)
            times = self._generated(cost, lengths, replicas)
            done, compute = (start + self.grouped(times))[np.newaxis], [float(times.max())]
        else:
            done, compute = self._chunks(station, lengths, arrivals, start)
        found.switch[station.stages[0].name] = switch
        self._note(found, station, start, done, compute)

    def _generated(self, cost: Decoding, lengths: NDArray[np.int64], replicas: int) -> Floats:
        """Of the same batch again, what it took before."""
        if self._latest is None or self._latest[:2] != (cost, replicas) or self._latest[2] is not lengths:
            times = finish_times(cost, lengths, replicas, self.problem.dealing, self.problem.group)
            self._latest = cost, replicas, lengths, times
        return self._latest[3]

    def _note(self, found: Iteration, station: Station, start: float, done: Floats, compute: Sequence[float]) -> None:
        for stage, times, seconds in zip(station.stages, done, compute, strict=True):
            found.done[stage.name], found.compute[stage.name] = times, seconds
            found.begin[stage.name], found.end[stage.name] = start, float(times.max())
            found.switch.setdefault(stage.name, 0.0)
        self._free[station] = float(done.max())

    def _floor(self, station: Station, begins: float) -> tuple[float, float]:
        """When the station's devices are its own at the earliest, and how long others needed to make room before that."""
        rivals = self.rivals[station]
        free = max([begins, *(self._free.get(one, 0.0) for one in (station, *rivals))])
        leaving = {rival: self._switch(rival, station) for rival in rivals
                   if rival in self._loaded and not _same_weights(rival, station)}
        switch = max(leaving.values(), default=0.0)
        self._loaded = (self._loaded - leaving.keys()) | {station}
        start = max([free + switch, *(self._room.get(rival, 0.0) for rival in rivals)])
        self._room.update({rival: free + seconds for rival, seconds in leaving.items()})
        return start, switch

    def _switch(self, before: Station, after: Station) -> float:
        return self.problem.switch(before.stages[-1], after.stages[0])

    def _arrivals(self, found: Iteration, station: Station, samples: int, begins: float) -> Floats:
        if not station.inputs:
            return np.full(samples, begins)
        transfer = self.problem.transfer_s
        came = [found.done[name] + transfer.get((name, stage.name), 0.0)
                for stage in station.stages for name in stage.after if name in station.inputs]
        arrivals: Floats = np.max(came, axis=0)
        return np.full(samples, arrivals.max()) if self.waits(station) else arrivals

    def _chunks(self, station: Station, lengths: NDArray[np.int64], arrivals: Floats, start: float) -> tuple[Floats, list[float]]:
        """First come, first served, in chunks; a sample leaves with its chunk."""
        size = self._size(station, arrivals, start)
        order = self._order(arrivals)
        ends = np.append(np.arange(size, len(order), size), len(order))
        costs = station.costs(lengths[order], ends)
        left = queue(np.maximum(arrivals[order][ends - 1], start), costs.sum(axis=0))
        after = np.cumsum(costs[::-1], axis=0)[::-1] - costs
        done = np.empty((len(costs), len(order)))
        done[:, order] = np.repeat(left - after, np.diff(ends, prepend=0), axis=1)
        if self.problem.whole_samples and station.stages[-1].trains:
            done[-1, order[-1]] = max(done[-1, order[-1]], station.trained(lengths[order], ends, left - costs[-1]))
        return done, costs.sum(axis=1).tolist()

    def _order(self, arrivals: Floats) -> NDArray[np.int64]:
        """First come, first served: as the last ones were, where that still holds, for what is served in an order comes out in
        it."""
        if len(self._served) == len(arrivals):
            ordered = arrivals[self._served]
            if (ordered[:-1] <= ordered[1:]).all():
                return self._served
        order = expanded(stably_sorted(arrivals[:: self.problem.group]), self.problem.group)
        self._served = order[order < len(arrivals)]
        return self._served

    def _size(self, station: Station, arrivals: Floats, start: float) -> int:
        """Samples that a station takes at once: what the plan says, else all where all are there when it begins, else as the
        program's roles choose it by the pace at which they come."""
        if station not in self.sizes:
            named = [self.plan.chunk[stage.name] for stage in station.stages if stage.name in self.plan.chunk]
            is_whole = not station.streams or (not named and float(arrivals.max()) <= start)
            size = self.problem.samples if is_whole else max(named, default=0) or self._adapted(station, float(np.ptp(arrivals)))
            size = max(size, *(stage.least_chunk for stage in station.stages))
            self.sizes[station] = min(-(-size // self.problem.group) * self.problem.group, self.problem.samples)
        return self.sizes[station]

    def _adapted(self, station: Station, spread_s: float) -> int:
        problem, groups = self.problem, -(-self.problem.samples // self.problem.group)
        fixed = sum(service(stage, len(station.places[stage.name]), problem.lengths)[0] for stage in station.stages)
        whole = float(station.costs(problem.lengths, np.array([problem.samples])).sum())
        return smallest(fixed, (whole - fixed) / groups, spread_s / groups, groups) * problem.group


def stations(problem: Problem, plan: Plan) -> tuple[Station, ...]:
    """The stages of a plan, producers first, with those together that take turns within each chunk."""
    joined = {frozenset(names) for names in _per_chunk(plan.tree) if _may_interleave(problem, names)}
    largest = [names for names in joined if not any(names < other for other in joined)]
    found: dict[frozenset[str], tuple[Stage, ...]] = {}
    for stage in problem.stages:
        mine = next((names for names in largest if stage.name in names), frozenset([stage.name]))
        found[mine] = (*found.pop(mine, ()), stage)
    places = plan.devices
    return tuple(Station(stages, {stage.name: places.get(stage.name, range(0)) for stage in stages}) for stages in found.values())


def makers_of(problem: Problem, inputs: Sequence[str]) -> set[str]:
    """All stages that items have gone through which come from `inputs`."""
    found = set(inputs)
    for name in inputs:
        found |= makers_of(problem, problem.stage(name).after)
    return found


def stably_sorted(values: Floats) -> NDArray[np.int64]:
    """Places from small to large, of equal values the first one first: `argsort(kind="stable")`, in about a quarter of its
    time for thousands of values of which few are equal."""
    order = np.argsort(values)
    found = values[order]
    is_tied = np.zeros(len(values) + 1, np.bool_)
    is_tied[1:-1] = found[1:] == found[:-1]
    places = np.flatnonzero(is_tied[1:] | is_tied[:-1])
    order[places] = order[places][np.lexsort((order[places], found[places]))]
    return order


def queue(arrivals: Floats, seconds: Floats) -> Floats:
    """Ends of jobs that one server does in their order, each as soon as it is there: max(arrival, end of the last) + seconds."""
    worked = np.cumsum(seconds)
    ends: Floats = worked + np.maximum.accumulate(arrivals - worked + seconds)
    return ends


def _per_chunk(tree: Tree) -> Iterator[list[str]]:
    """Stages that take turns within each chunk; of sets that are in each other, all."""
    if isinstance(tree, Leaf):
        return
    yield from _per_chunk(tree.first)
    yield from _per_chunk(tree.second)
    if isinstance(tree, InTurn) and tree.per_chunk:
        yield [leaf.stage for leaf in leaves(tree)]


def _may_interleave(problem: Problem, names: Sequence[str]) -> bool:
    """None of them generates, they hold the same weights, and nothing that one makes comes to another by way of a stranger."""
    stages = [problem.stage(name) for name in names]
    outside = makers_of(problem, [name for stage in stages for name in stage.after if name not in names]) - set(names)
    loops = any(not makers_of(problem, problem.stage(name).after).isdisjoint(names) for name in outside)
    alike = all(one.weights and one.weights == other.weights for one, other in pairwise(stages))
    able = all(isinstance(stage.cost, Batch) and stage.needs_device for stage in stages)
    return problem.interleaves and able and alike and not loops


def _same_weights(one: Station, other: Station) -> bool:
    return bool(one.stages[-1].weights) and one.stages[-1].weights == other.stages[0].weights

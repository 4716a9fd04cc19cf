"""Shapes of executions, trees without numbers of devices, and what they cost for many divisions of the devices at once.

The algebra. A part of the graph on n devices has

    whole     seconds from the begin of the batch to its end, by itself
    streams   (sum, bottleneck): it takes chunk by chunk and hands on chunk by chunk. `sum` is the time of the first chunk through
              all of its stages, `bottleneck` the slowest stage's pace; k chunks take sum + (k - 1) * bottleneck
    ends      (sum, bottleneck): it takes chunk by chunk, but what it hands on comes at the end; `sum` with all that follows
              the last chunk. (whole, 0) is one: it begins when its whole batch is there.

and is made of two parts in one of these ways, first -> second:

    side by side  streams + streams, and streams + ends: sums add up, the larger bottleneck; else one whole after the other.
                  Where nothing flows between the two: the larger of everything.
    in turn       the first, the switch, the second's whole. Within chunks, where that is possible: sums and bottlenecks add up.

To begin the next batch, devices of the first part of all must come back: `round` is `whole` with that switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from rlinf_cli.scheduling.search_costs import Costs, Curves, Floats, Ints
from rlinf_cli.scheduling.search_graph import Cut, Graph
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide, Tree


@dataclass(frozen=True)
class One:
    place: int


@dataclass(frozen=True)
class Turns:
    """Stages that work on one chunk after another in turn, on the same devices."""

    group: int


@dataclass(frozen=True)
class Two:
    first: Shape
    second: Shape
    beside: bool
    cut: Cut


Shape: TypeAlias = One | Turns | Two


@dataclass(frozen=True)
class Stream:
    """(sum, bottleneck) for each size of chunk, [sizes, divisions]; who streams, and the chunks of those who do not."""

    sum: Floats
    bottleneck: Floats
    stages: tuple[int, ...] = ()
    chunks: Mapping[int, int] = field(default_factory=dict)
    arrivals: Floats | None = None
    """Where it begins with generation, when that is done with each part of the batch, [64, divisions]."""


@dataclass(frozen=True)
class Cost:
    """Of a shape, for each division of the devices. `chunks`: stage -> samples, of the first division's best."""

    whole: Floats
    round: Floats
    occupied: Floats
    """Seconds of a step for which it has its devices, where generation goes on from step to step; inf where it does not."""
    streams: Stream | None = None
    ends: tuple[Stream, ...] = ()
    chunks: Mapping[int, int] = field(default_factory=dict)


class Evaluation:
    """Costs of shapes. Divisions are [divisions] devices in all, and for each pair side by side, in preorder, how many of
    its devices the first has, [pairs, divisions]."""

    def __init__(self, graph: Graph, costs: Costs, tight: bool) -> None:
        self._graph, self._costs = graph, costs
        self._tight = tight

    def cost(self, shape: Shape, devices: Ints, divisions: Ints) -> Cost:
        return self._of(shape, devices, iter(divisions), 0.0)

    def _of(self, shape: Shape, devices: Ints, divisions: Iterator[Ints], reserved: float) -> Cost:
        if isinstance(shape, One):
            return self._one(shape.place, devices, reserved)
        if isinstance(shape, Turns):
            return self._turns(shape.group, devices, reserved)
        if shape.beside:
            mine = np.clip(next(divisions), 0, devices)
            first = self._of(shape.first, mine, divisions, reserved)
            second = self._of(shape.second, devices - mine, divisions, reserved)
            return self._flow(first, second, shape.cut) if shape.cut.flows else self._apart(first, second, shape.cut)
        first = self._of(shape.first, devices, divisions, reserved + self.exposed(shape.second))
        second = self._of(shape.second, devices, divisions, reserved + self.exposed(shape.first))
        return self._in_turn(first, second, shape.cut)

    def exposed(self, shape: Shape) -> float:
        """Most bytes that a shape leaves on a device."""
        if not self._tight:
            return 0.0
        if isinstance(shape, One):
            return self._left(shape.place)
        if isinstance(shape, Turns):
            return sum(self._left(place) for place in self._graph.members(shape.group))
        first, second = self.exposed(shape.first), self.exposed(shape.second)
        return max(first, second) if shape.beside else first + second

    def _left(self, place: int) -> float:
        return self._costs.left(place) if self._tight else 0.0

    def _one(self, place: int, devices: Ints, reserved: float) -> Cost:
        curves = self._costs.curves(place, reserved)
        whole, streams = curves.whole[devices], _leaf_stream(curves, devices, place)
        occupied = self._costs.occupied(place, reserved)[devices] if self._graph.problem.staleness else whole
        return Cost(whole, whole, occupied, streams, (_at_once(whole, {}),))

    def _turns(self, group: int, devices: Ints, reserved: float) -> Cost:
        members = tuple(self._graph.members(group))
        left = sum(self._left(place) for place in members)
        chunk = sum(self._costs.curves(place, reserved + left - self._left(place)).pace[:, devices] for place in members)
        streams = Stream(np.asarray(chunk), np.asarray(chunk), members)
        whole, chunks = self._fastest([streams])
        return Cost(whole, whole, whole, streams, (_at_once(whole, chunks),), chunks)

    def _flow(self, first: Cost, second: Cost, cut: Cut) -> Cost:
        latency = cut.transfer * np.array(self._costs.sizes, np.float64)[:, None]
        leads = first.streams if self._graph.is_joined(cut) else None
        streams = _joined(leads, second.streams, latency) if leads and second.streams else None
        ends = tuple(_joined(leads, end, latency) for end in second.ends) if leads else ()
        ways = [*([streams] if streams else []), *ends]
        piped, chunks = self._fastest(ways)
        after = first.whole + second.whole
        if after[0] <= piped[0]:
            chunks = {**first.chunks, **second.chunks}
        whole, around = np.minimum(after, piped), np.minimum(first.round + second.whole, piped)
        occupied = np.maximum(first.occupied, second.occupied)
        return Cost(whole, around, occupied, streams, (*ends, _at_once(whole, chunks)), chunks)

    def _apart(self, first: Cost, second: Cost, cut: Cut) -> Cost:
        is_joined = self._graph.is_joined(cut)
        streams = _abreast(first.streams, second.streams) if is_joined and first.streams and second.streams else None
        ends = [_abreast(one, other) for one in _ways(first) for other in _ways(second)
                if one is not first.streams or other is not second.streams] if is_joined else []
        whole, chunks = np.maximum(first.whole, second.whole), {**first.chunks, **second.chunks}
        around, occupied = np.maximum(first.round, second.round), np.maximum(first.occupied, second.occupied)
        return Cost(whole, around, occupied, streams, (*ends, _at_once(whole, chunks)), chunks)

    def _in_turn(self, first: Cost, second: Cost, cut: Cut) -> Cost:
        whole, chunks = first.whole + cut.there + second.whole, {**first.chunks, **second.chunks}
        ends = [replace(way, sum=way.sum + (cut.there + second.whole), chunks={**way.chunks, **second.chunks})
                for way in _ways(first)]
        around = whole + cut.back
        return Cost(whole, around, self._alternating(around, cut), None, tuple(ends), chunks)

    def _alternating(self, around: Floats, cut: Cut) -> Floats:
        """Generation cannot run ahead of training on the same devices."""
        graph, group = self._graph, cut.first | cut.second
        if graph.is_bound(group):
            return np.full(around.shape, np.inf)
        return around + (graph.problem.sync_s if group & graph.training else 0.0)

    def _fastest(self, ways: Sequence[Stream]) -> tuple[Floats, Mapping[int, int]]:
        """The least of pipelines over all sizes of chunk, and the chunks of the first division's."""
        rest, every = (self._costs.counts - 1)[:, None], np.arange(len(self._costs.sizes))
        least, chunks = np.array([np.inf]), {}
        for way in ways:
            seconds = way.sum + rest * way.bottleneck
            if way.arrivals is not None:
                seconds = seconds + self._costs.late(way.arrivals, every, way.bottleneck)
            if len(seconds) and seconds[:, 0].min() < least[0]:
                chunks = {**way.chunks, **dict.fromkeys(way.stages, self._costs.sizes[int(seconds[:, 0].argmin())])}
            least = np.minimum(least, seconds.min(axis=0, initial=np.inf))
        return least, chunks

    def tree(self, shape: Shape, devices: int, divisions: Sequence[int],
             chunks: Mapping[int, int]) -> tuple[Tree, Mapping[str, int]]:
        """With as many devices for each stage as serve it, [pairs]; and those of a rank or replica where a stage has a choice."""
        growing = _Growing(self._graph, self._costs, self, iter(divisions), chunks)
        return growing.tree(shape, devices, 0.0), growing.units


class _Growing:
    """A tree from a shape; with it `units`, devices of a rank or replica of stages that have a choice."""

    def __init__(self, graph: Graph, costs: Costs, evaluation: Evaluation, divisions: Iterator[int],
                 chunks: Mapping[int, int]) -> None:
        self._graph, self._costs, self._evaluation = graph, costs, evaluation
        self._divisions, self._chunks = divisions, chunks
        self.units: dict[str, int] = {}

    def tree(self, shape: Shape, devices: int, reserved: float) -> Tree:
        if isinstance(shape, One):
            return self._leaf(shape.place, devices, reserved)
        if isinstance(shape, Turns):
            left = self._evaluation.exposed(shape)
            parts = [self._leaf(place, devices, reserved + left - self._evaluation.exposed(One(place)))
                     for place in self._graph.members(shape.group)]
            tree: Tree = parts[-1]
            for part in reversed(parts[:-1]):
                tree = InTurn(part, tree, per_chunk=True)
            return tree
        if shape.beside:
            mine = min(max(next(self._divisions), 0), devices)
            first = self.tree(shape.first, mine, reserved)
            return SideBySide(first, self.tree(shape.second, devices - mine, reserved))
        first = self.tree(shape.first, devices, reserved + self._evaluation.exposed(shape.second))
        return InTurn(first, self.tree(shape.second, devices, reserved + self._evaluation.exposed(shape.first)))

    def _leaf(self, place: int, devices: int, reserved: float) -> Leaf:
        stage, curves, size = self._graph.stages[place], self._costs.curves(place, reserved), self._chunks.get(place)
        used = curves.whole_used if size is None else curves.pace_used[self._costs.sizes.index(size)]
        if stage.spreads:
            self.units[stage.name] = int(curves.units[used[devices]])
        return Leaf(stage.name, int(used[devices]))


def _ways(cost: Cost) -> tuple[Stream, ...]:
    return (cost.streams, *cost.ends) if cost.streams else cost.ends


def _at_once(whole: Floats, chunks: Mapping[int, int]) -> Stream:
    """It begins when its whole batch is there."""
    return Stream(whole[None], np.zeros_like(whole)[None], (), chunks)


def _leaf_stream(curves: Curves, devices: Ints, place: int) -> Stream:
    pace = curves.pace[:, devices]
    return Stream(pace, pace, (place,), arrivals=None if curves.arrivals is None else curves.arrivals[:, devices])


def _joined(first: Stream, second: Stream, latency: Floats) -> Stream:
    return Stream(first.sum + second.sum + latency, np.maximum(first.bottleneck, second.bottleneck), first.stages + second.stages,
                  {**first.chunks, **second.chunks}, first.arrivals if first.arrivals is not None else second.arrivals)


def _abreast(first: Stream, second: Stream) -> Stream:
    return Stream(np.maximum(first.sum, second.sum), np.maximum(first.bottleneck, second.bottleneck),
                  first.stages + second.stages, {**first.chunks, **second.chunks})

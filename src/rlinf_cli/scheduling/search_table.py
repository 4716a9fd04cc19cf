"""The dynamic programme: for each set of stages, each number of devices, and each bound on the bottleneck of a pipeline, the
least that `search_shape`'s algebra can come to, over all ways to cut the set and to divide the devices.

A pipeline has two costs, a sum and a bottleneck, and which of two is better depends on what it will be a part of. So the least
sum is kept for each bound on the bottleneck (a row), which makes every composition a convolution over the devices. Where there
are more devices than units, or more bottlenecks than bounds, both are thinned out, and `search_refine` makes up for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.search_costs import Costs, Floats, Ints
from rlinf_cli.scheduling.search_graph import Cut, Graph
from rlinf_cli.scheduling.search_shape import One, Shape, Turns, Two

UNITS = 64
SIZES = 6
LEAST_BOUNDS = 24


class Key(NamedTuple):
    """A set of stages; bytes that others leave on its devices; most bytes that it leaves on one of them."""

    group: int
    reserved: float
    exposed: float


@dataclass(frozen=True)
class Option:
    """A cut, and how its two sides share devices."""

    first: Key
    second: Key
    beside: bool
    cut: Cut


class Recipe(NamedTuple):
    """A `kind` of cost of the whole: that of the first part and that of the second, joined, and something more."""

    kind: str
    first: str
    second: str
    more: float | Floats = 0.0


Part: TypeAlias = dict[str, Floats]
"""Kind of cost -> [units + 1], or [units + 1, rows] for `streams`, `flow` (streams, and ends with what does not) and `ends`. What
is missing is not possible."""


@dataclass(frozen=True)
class Draft:
    """A shape with its division of the devices: for each pair side by side, in preorder, how many the first has."""

    shape: Shape
    divisions: tuple[int, ...]
    seconds: float


@dataclass
class Rows:
    """Of a size of chunk and a bound on the bottleneck each."""

    sizes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """Place of the size."""
    bounds: Floats = field(default_factory=lambda: np.zeros(0))
    rest: Floats = field(default_factory=lambda: np.zeros(0))
    """Seconds of all chunks behind the first, at the bound."""


class Table:
    """Of one problem. `tight`: what stages leave on devices counts; else only what each needs by itself."""

    def __init__(self, graph: Graph, costs: Costs, tight: bool, units: int = UNITS) -> None:
        self._graph, self._costs, self._tight = graph, costs, tight
        self.units = min(units, costs.most)
        self.devices = np.arange(self.units + 1) * costs.most // self.units
        self._options: dict[Key, list[Option]] = {}
        self._exposures: dict[int, frozenset[float]] = {}
        self._parts: dict[Key, Part] = {}
        self._atoms: dict[Key, tuple[Shape, Part] | None] = {}
        self.roots = [Key(graph.all, 0.0, exposed) for exposed in sorted(self.exposures(graph.all))]
        self._rows = self._bounded()
        self.considered = 0

    def best(self, kind: str = "around") -> Draft | None:
        """The fastest of all; `kind`: "around" synchronous, "occupied" with generation ahead. None where there is none."""
        return min(self.drafts(kind), key=lambda draft: draft.seconds, default=None)

    def drafts(self, kind: str = "around", near: float = 1.0) -> list[Draft]:
        """The fastest for each cut of the whole graph and way to share, the best first: those that are slower than the best by
        no more than the factor `near`."""
        found = [(value, number, way) for number, (value, way) in enumerate(
            way for root in self.roots for way in self._ways(root, self.units, kind, -1)) if np.isfinite(value)]
        least = min(found, default=(np.inf,))[0]
        return [Draft(*self._followed(way), value) for value, _, way in sorted(found) if value <= near * least]

    def part(self, key: Key) -> Part:
        if key not in self._parts:
            self._parts[key] = self._made(key)
        return self._parts[key]

    def _made(self, key: Key) -> Part:
        atom = self._atom(key)
        part: Part = dict(atom[1]) if atom else {}
        for option in self.options(key):
            first, second = self.part(option.first), self.part(option.second)
            for recipe in self._recipes(option):
                if recipe.first in first and recipe.second in second:
                    one, other = _aligned(first[recipe.first], second[recipe.second])
                    join = convolved(one, other, _is_sum(option, recipe)) if option.beside else one + other
                    _merge(part, {recipe.kind: join + recipe.more})
            self.considered += (self.units + 1) * (len(self._costs.sizes) + 1 if option.beside else 1)
        return self._completed(part)

    def _completed(self, part: Part) -> Part:
        """With what one kind of cost says about others."""
        if "streams" in part:
            _merge(part, {"flow": part["streams"]})
        if "flow" in part:
            fastest = (part["flow"] + self._rows.rest).min(axis=1, initial=np.inf)
            _merge(part, {"whole": fastest, "around": fastest, "ends": part["flow"]})
        if "whole" in part:
            whole = np.repeat(part["whole"][:, None], len(self._rows.bounds), axis=1)
            _merge(part, {"ends": whole})
        return part

    def _atom(self, key: Key) -> tuple[Shape, Part] | None:
        """What a set is without a cut; None where it cannot be without."""
        if key not in self._atoms:
            members = list(self._graph.members(key.group))
            found: tuple[Shape, Part] | None = None
            if len(members) == 1:
                found = One(members[0]), self._one(members[0], key.reserved)
            elif self._graph.interleaves(key.group) and key.exposed == self._left(key.group):
                found = Turns(key.group), {"streams": self._bounded_rows(self._chunks(key))}
            self._atoms[key] = found
        return self._atoms[key]

    def _one(self, place: int, reserved: float) -> Part:
        curves = self._costs.curves(place, reserved)
        whole = curves.whole[self.devices]
        part = {"whole": whole, "around": whole}
        if self._graph.problem.staleness:
            part["occupied"] = self._costs.occupied(place, reserved)[self.devices]
        if not np.isfinite(curves.pace[:, -1]).any():
            return part
        chunks = curves.pace[:, self.devices]
        part["streams"] = self._bounded_rows(chunks)
        if curves.arrivals is not None:
            late = self._costs.late(curves.arrivals[:, self.devices], self._rows.sizes, self._rows.bounds[:, None])
            part["streams"] = part["streams"] + late.T
        return part

    def _chunks(self, key: Key) -> Floats:
        """Seconds of a chunk in a set whose stages take turns within it, [sizes, units + 1]."""
        chunks = np.zeros((len(self._costs.sizes), self.units + 1))
        for place in self._graph.members(key.group):
            reserved = key.reserved + key.exposed - self._left(1 << place)
            chunks += self._costs.curves(place, reserved).pace[:, self.devices]
        return chunks

    def _bounded_rows(self, chunks: Floats) -> Floats:
        """[sizes, units + 1] -> [units + 1, rows]: a chunk's seconds where they keep to the row's bound."""
        seconds = chunks[self._rows.sizes].T
        found: Floats = np.where(seconds <= self._rows.bounds, seconds, np.inf)
        return found

    def options(self, key: Key) -> list[Option]:
        if key not in self._options:
            self._options[key] = list(self._cut(key))
        return self._options[key]

    def _cut(self, key: Key) -> Iterator[Option]:
        for cut in self._graph.cuts(key.group):
            for left in self.exposures(cut.first):
                for other in self.exposures(cut.second):
                    if cut.shares and left + other == key.exposed:
                        yield Option(Key(cut.first, key.reserved + other, left), Key(cut.second, key.reserved + left, other),
                                     False, cut)
                    if max(left, other) == key.exposed and (cut.flows or cut.first < cut.second):
                        yield Option(Key(cut.first, key.reserved, left), Key(cut.second, key.reserved, other), True, cut)

    def exposures(self, group: int) -> frozenset[float]:
        """What a set may leave on a device: it depends on who shares devices with whom."""
        if group not in self._exposures:
            pairs = [(left, other) for cut in self._graph.cuts(group) for left in self.exposures(cut.first)
                     for other in self.exposures(cut.second)] if self._tight else []
            self._exposures[group] = frozenset({self._left(group)} if not pairs else
                                               {amount for left, other in pairs for amount in (left + other, max(left, other))})
        return self._exposures[group]

    def _left(self, group: int) -> float:
        return sum(self._costs.left(place) for place in self._graph.members(group)) if self._tight else 0.0

    def _recipes(self, option: Option) -> Iterator[Recipe]:
        there, back = option.cut.there, option.cut.back
        if not option.beside:
            yield Recipe("whole", "whole", "whole", there)
            yield Recipe("around", "whole", "whole", there + back)
            yield Recipe("ends", "ends", "whole", there)
            if self._graph.problem.staleness and not self._graph.is_bound(option.cut.first | option.cut.second):
                sync = self._graph.problem.sync_s if (option.cut.first | option.cut.second) & self._graph.training else 0.0
                yield Recipe("occupied", "whole", "whole", there + back + sync)
            return
        latency = option.cut.transfer * np.array(self._costs.sizes, np.float64)[self._rows.sizes]
        yield Recipe("whole", "whole", "whole")
        yield Recipe("around", "around", "whole" if option.cut.flows else "around")
        yield Recipe("occupied", "occupied", "occupied")
        if not self._graph.is_joined(option.cut):
            return
        yield Recipe("streams", "streams", "streams", latency)
        yield Recipe("flow", "streams", "ends", latency) if option.cut.flows else Recipe("ends", "ends", "ends")

    def _bounded(self) -> Rows:
        """All bottlenecks that there can be, or as many of them as there is time for, evenly in the logarithm."""
        chunks = np.concatenate([self._chunks_of(key) for key in self._reached()], axis=1)
        step, most = -(-len(self._costs.sizes) // SIZES), max(LEAST_BOUNDS, 1024 // self.units)
        sizes, bounds = [], []
        for size in range(len(self._costs.sizes) - 1, -1, -step if self.units < self._costs.most else -1):
            values = np.unique(chunks[size][np.isfinite(chunks[size])])
            if len(values) > most:
                evenly = np.geomspace(values[values > 0][0], values[-1], most)
                values = values[np.unique(np.minimum(np.searchsorted(values, evenly), len(values) - 1))]
            bounds.append(values)
            sizes.append(np.full(len(values), size))
        if not sizes:
            return Rows()
        rows = Rows(np.concatenate(sizes), np.concatenate(bounds))
        rows.rest = rows.bounds * (self._costs.counts[rows.sizes] - 1)
        return rows

    def _reached(self) -> set[Key]:
        found, left = set(self.roots), list(self.roots)
        while left:
            parts = {side for option in self.options(left.pop()) for side in (option.first, option.second)} - found
            found |= parts
            left.extend(parts)
        return found

    def _chunks_of(self, key: Key) -> Floats:
        members = list(self._graph.members(key.group))
        if len(members) == 1:
            return self._costs.curves(members[0], key.reserved).pace[:, self.devices]
        if self._graph.interleaves(key.group) and key.exposed == self._left(key.group):
            return self._chunks(key)
        return np.full((len(self._costs.sizes), 1), np.inf)

    # back from a cost to what has it

    def _ways(self, key: Key, units: int, kind: str, row: int) -> Iterator[tuple[float, Way]]:
        """All that a cost is the least of, the immediate ones first."""
        atom = self._atom(key)
        if atom and kind in atom[1]:
            yield float(_cell(atom[1][kind], units, row)), Way(atom[0])
        for option in self.options(key):
            for recipe in self._recipes(option):
                if recipe.kind == kind:
                    yield from self._divided(option, recipe, units, row)
        part = self.part(key)
        if kind in ("whole", "around") and "flow" in part:
            seconds = part["flow"][units] + self._rows.rest
            for size in np.unique(self._rows.sizes):
                rows = np.flatnonzero(self._rows.sizes == size)
                best = int(rows[seconds[rows].argmin()])
                if key in self.roots:  # the best of each cut
                    yield from ((value + self._rows.rest[best], way) for value, way in self._ways(key, units, "flow", best))
                else:
                    yield float(seconds[best]), Way(None, (key, units, "flow", best))
        links = {"flow": ("streams",), "ends": ("flow", "whole")}.get(kind, ())
        for link in links:
            if link in part:
                yield float(_cell(part[link], units, row)), Way(None, (key, units, link, row))

    def _divided(self, option: Option, recipe: Recipe, units: int, row: int) -> Iterator[tuple[float, Way]]:
        first, second = self.part(option.first).get(recipe.first), self.part(option.second).get(recipe.second)
        if first is None or second is None:
            return
        more = float(recipe.more if np.ndim(recipe.more) == 0 else np.asarray(recipe.more)[row])
        mine, rest = units, units
        if option.beside:
            ours, theirs = (part[: units + 1, row] if part.ndim == 2 else part[: units + 1] for part in (first, second))
            seconds = ours + theirs[::-1] if _is_sum(option, recipe) else np.maximum(ours, theirs[::-1])
            mine = int(seconds.argmin())
            rest, value = units - mine, float(seconds[mine])
        else:
            value = float(_cell(first, units, row) + _cell(second, units, row))
        yield value + more, Way(None, (option.first, mine, recipe.first, row), (option.second, rest, recipe.second, row), option)

    def _followed(self, way: Way) -> tuple[Shape, tuple[int, ...]]:
        if way.shape is not None:
            return way.shape, ()
        assert way.first is not None
        shape, divisions = self._best(*way.first)
        if way.second is None or way.option is None:
            return shape, divisions
        second, others = self._best(*way.second)
        own = (int(self.devices[way.first[1]]),) if way.option.beside else ()
        return Two(shape, second, way.option.beside, way.option.cut), (*own, *divisions, *others)

    def _best(self, key: Key, units: int, kind: str, row: int) -> tuple[Shape, tuple[int, ...]]:
        _, way = min(self._ways(key, units, kind, row), key=lambda pair: pair[0])
        return self._followed(way)


@dataclass(frozen=True)
class Way:
    """To a cost: a shape without a cut, another cost of the same set, or two of the sides of a cut."""

    shape: Shape | None
    first: tuple[Key, int, str, int] | None = None
    second: tuple[Key, int, str, int] | None = None
    option: Option | None = None


def _is_sum(option: Option, recipe: Recipe) -> bool:
    return option.cut.flows and recipe.kind != "occupied"


def _cell(part: Floats, units: int, row: int) -> np.float64:
    value: np.float64 = part[units, row] if part.ndim == 2 else part[units]
    return value


def _merge(part: Part, other: Part) -> None:
    for kind, seconds in other.items():
        part[kind] = np.minimum(part[kind], seconds) if kind in part else seconds


def _aligned(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """With a row axis where one of them has one."""
    if first.ndim == second.ndim:
        return first, second
    return (first, second[:, None]) if first.ndim == 2 else (first[:, None], second)


def convolved(first: Floats, second: Floats, is_sum: bool) -> NDArray[np.float64]:
    """Of each number of units, the least over its divisions of sum or larger, for costs that do not rise: [units + 1, ...]."""
    found = np.full(np.broadcast_shapes(first.shape, second.shape), np.inf)
    units, join = len(first) - 1, np.add if is_sum else np.maximum
    is_new = (first[1:] < first[:-1]).reshape(units, -1).any(axis=1)
    for mine in [0, *(np.flatnonzero(is_new) + 1).tolist()]:
        if np.isfinite(first[mine]).any():
            np.minimum(found[mine:], join(first[mine], second[: units + 1 - mine]), out=found[mine:])
    return found

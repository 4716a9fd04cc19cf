"""The stage graph as sets of stages, and all ways to cut such a set in two: those that produce, and those that follow.

A set is an integer, bit i for the i-th stage. The sets that occur are differences of two order ideals; a cut of one is an
order ideal of it and the rest, so that nothing flows back. A cut is not a prefix of some order: of stages that do not depend on
one another either may come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from rlinf_cli.scheduling.problem import Batch, Decoding, Problem, Stage


@dataclass(frozen=True)
class Cut:
    first: int
    second: int
    flows: bool
    """Whether something flows from the first to the second; else neither waits for the other."""
    shares: bool
    """Whether both need devices: only then can they take turns."""
    there: float
    """Seconds for which devices are nobody's when they pass from the first to the second, and `back` again."""
    back: float
    transfer: float
    """Seconds a sample takes from the first to the second."""


class Graph:
    """Of a problem's stages. Sets and cuts are found when they are asked for, once."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.stages = problem, problem.stages
        places = {stage.name: place for place, stage in enumerate(self.stages)}
        self.before = [sum(1 << places[name] for name in set(stage.after)) for stage in self.stages]
        self.all = (1 << len(self.stages)) - 1
        self._cuts: dict[int, tuple[Cut, ...]] = {}

    def members(self, group: int) -> Iterator[int]:
        """Places of the stages in a set, producers first."""
        return (place for place in range(len(self.stages)) if group >> place & 1)

    def stages_of(self, group: int) -> list[Stage]:
        return [self.stages[place] for place in self.members(group)]

    def cuts(self, group: int) -> tuple[Cut, ...]:
        if group not in self._cuts:
            self._cuts[group] = tuple(self.cut(first, group ^ first) for first in self._ideals(group) if first not in (0, group))
        return self._cuts[group]

    def cut(self, first: int, second: int) -> Cut:
        flows = any(self.before[place] & first for place in self.members(second))
        shares = all(any(stage.needs_device for stage in self.stages_of(side)) for side in (first, second))
        there, back = (self._switch(first, second), self._switch(second, first)) if shares else (0.0, 0.0)
        moved = [self.problem.transfer_s.get((self.stages[producer].name, self.stages[place].name), 0.0)
                 for place in self.members(second) for producer in self.members(first & self.before[place])]
        return Cut(first, second, flows, shares, there, back, max(moved, default=0.0))

    @cached_property
    def sets(self) -> tuple[int, ...]:
        """All that cutting leads to, the smallest first: both sides of every cut come before what is cut."""
        found, left = {self.all}, [self.all]
        while left:
            parts = {side for cut in self.cuts(left.pop()) for side in (cut.first, cut.second)} - found
            found |= parts
            left.extend(parts)
        return tuple(sorted(found, key=lambda group: (group.bit_count(), group)))

    @cached_property
    def ideals(self) -> frozenset[int]:
        """Sets to which all that they depend on belongs."""
        return frozenset(self._ideals(self.all))

    @cached_property
    def generation(self) -> int:
        return sum(1 << place for place, stage in enumerate(self.stages) if isinstance(stage.cost, Decoding))

    @cached_property
    def training(self) -> int:
        return sum(1 << place for place, stage in enumerate(self.stages) if stage.trains)

    def interleaves(self, group: int) -> bool:
        """Whether the stages of a set can work on one chunk after another in turn."""
        stages = self.stages_of(group)
        alike = len({stage.weights for stage in stages}) == 1 and bool(stages[0].weights)
        return (self.problem.interleaves and len(stages) > 1 and alike
                and all(stage.streams and stage.needs_device and isinstance(stage.cost, Batch) for stage in stages))

    def is_joined(self, cut: Cut) -> bool:
        """Whether the two sides of a cut can be in one pipeline: generation sets the pace of only one strand of it."""
        first, second = (any(not self.before[place] for place in self.members(side & self.generation))
                         for side in (cut.first, cut.second))
        return not (first and second) if cut.flows else not (first or second)

    def is_bound(self, group: int) -> bool:
        """Whether a set both generates and trains: on the same devices, generation cannot run ahead."""
        return bool(group & self.generation and group & self.training)

    def _ideals(self, group: int) -> list[int]:
        found = [0]
        for place in self.members(group):
            needed = self.before[place] & group
            found += [ideal | 1 << place for ideal in found if ideal & needed == needed]
        return found

    def _switch(self, first: int, second: int) -> float:
        """The largest from what ends the first set to what begins the second."""
        used = 0
        for place in self.members(first):
            used |= self.before[place]
        sinks = [self.stages[place] for place in self.members(first & ~used)]
        sources = [self.stages[place] for place in self.members(second) if not self.before[place] & second]
        return max(self.problem.switch(sink, source) for sink in sinks for source in sources)

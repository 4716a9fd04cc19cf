"""What happens behind generation in one iteration: stages that take items as they come, or a batch at a time, on devices of
their own or in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.scheduling.costs import service
from rlinf_cli.scheduling.generation import Floats, finish_times
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Decoding, Problem, Stage
from rlinf_cli.scheduling.tree import InTurn, Leaf, Tree, leaves


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


class Pipeline:
    """Of one plan. `free` remembers from batch to batch who had which devices until when."""

    def __init__(self, problem: Problem, plan: Plan) -> None:
        self.problem, self.places = problem, plan.devices
        self._chunk = {stage.name: max(plan.chunk.get(stage.name, 1), stage.least_chunk) for stage in problem.stages}
        self._merged = dict(_per_chunk(plan.tree))
        self.rivals = {stage.name: [other for other in problem.stages if other is not stage and self._conflict(stage, other)]
                       for stage in problem.stages}
        self._last: dict[str, tuple[float, Stage]] = {}
        """Stage -> when the latest user of any device of it let go, and who that was."""

    def run(self, lengths: NDArray[np.int64], begins: float, ahead: Mapping[str, Floats] | None = None) -> Iteration:
        """A batch that may begin at `begins`; the stages that `ahead` tells have been dealt with."""
        found = Iteration()
        for stage in self.problem.stages:
            if ahead is not None and stage.name in ahead:
                done = ahead[stage.name]
                self._note(found, stage, begins, done, float(done.max()), 0.0)
            else:
                self._stage(found, stage, lengths, begins)
        return found

    def _stage(self, found: Iteration, stage: Stage, lengths: NDArray[np.int64], begins: float) -> None:
        floor, switch = self._floor(stage, begins)
        arrivals = self._arrivals(found, stage, lengths, begins)
        devices = len(self.places[stage.name])
        if isinstance(stage.cost, Decoding):
            start = max(floor, float(arrivals.max()))
            replicas = max(1, devices // stage.cost.devices_per_replica)
            done = start + self.grouped(finish_times(stage.cost, lengths, replicas, self.problem.dealing, self.problem.group))
            compute = float(done.max()) - start
        else:
            start = floor
            done, compute = self._served(found, stage, lengths, arrivals, floor)
        self._note(found, stage, start, done, compute, switch)

    def _note(self, found: Iteration, stage: Stage, start: float, done: Floats, compute: float, switch: float) -> None:
        name = stage.name
        found.done[name], found.begin[name], found.end[name] = done, start, float(done.max())
        found.compute[name], found.switch[name] = compute, switch
        if isinstance(stage.cost, Decoding):
            found.compute[name] = found.end[name] - start
        for other in [stage, *self.rivals[name]]:
            if found.end[name] >= self._last.get(other.name, (0.0, stage))[0]:
                self._last[other.name] = found.end[name], stage

    def _floor(self, stage: Stage, begins: float) -> tuple[float, float]:
        """When the stage's devices are its own at the earliest, and how long they needed to become that."""
        if not self.places[stage.name]:
            return begins, 0.0
        last = self._last.get(stage.name)
        if last is None:
            return begins, 0.0
        switch = 0.0 if last[1] is stage else self.problem.switch(last[1], stage)
        if stage.name in self._merged:
            return begins, 0.0
        return max(begins, last[0]) + switch, switch

    def _arrivals(self, found: Iteration, stage: Stage, lengths: NDArray[np.int64], begins: float) -> Floats:
        if not stage.after:
            return np.full(len(lengths), begins)
        transfer = self.problem.transfer_s
        arrivals = np.max([found.done[name] + transfer.get((name, stage.name), 0.0) for name in stage.after], axis=0)
        needs_all = not stage.streams or self._waits_for_turn(stage)
        whole: Floats = np.full(len(lengths), arrivals.max()) if needs_all else arrivals
        return whole

    def _waits_for_turn(self, stage: Stage) -> bool:
        """Whether what it takes has been made on its own devices: then all of it is there when its turn comes."""
        makers = self._makers(stage)
        return stage.name not in self._merged and any(other.name in makers for other in self.rivals[stage.name])

    def _makers(self, stage: Stage) -> set[str]:
        """All stages that its items have gone through."""
        found = set(stage.after)
        for name in stage.after:
            found |= self._makers(self.problem.stage(name))
        return found

    def _served(self, found: Iteration, stage: Stage, lengths: NDArray[np.int64], arrivals: Floats,
                floor: float) -> tuple[Floats, float]:
        """First come, first served, in chunks; a sample leaves with its chunk."""
        fixed, each, once = service(stage, len(self.places[stage.name]), lengths)
        if stage.name in self._merged:
            return self._interleaved(found, stage, lengths, each + fixed)
        chunk = min(self._chunk[stage.name], len(arrivals))
        order = np.argsort(arrivals, kind="stable")
        firsts = np.arange(0, len(order), chunk)
        came = np.maximum.reduceat(arrivals[order], firsts)
        cost = np.add.reduceat(each[order], firsts) + fixed
        ends = queue(np.maximum(came, floor), cost)
        ends[-1] += once
        done = np.empty(len(order))
        done[order] = np.repeat(ends, np.diff([*firsts, len(order)]))
        return done, float(cost.sum()) + once

    def _interleaved(self, found: Iteration, stage: Stage, lengths: NDArray[np.int64], each: Floats) -> tuple[Floats, float]:
        """Each sample goes through both stages before the next one does: as if they were one, which is as slow as both."""
        first = self.problem.stage(self._merged[stage.name])
        fixed, before, _ = service(first, len(self.places[first.name]), lengths)
        came = self._arrivals(found, first, lengths, found.begin[first.name])
        order = np.argsort(came, kind="stable")
        done = np.empty(len(each))
        done[order] = queue(came[order], (each + before + fixed)[order])
        return done, float(each.sum())

    def grouped(self, times: Floats) -> Floats:
        """A group leaves with its last sample."""
        firsts = np.arange(0, len(times), self.problem.group)
        return np.repeat(np.maximum.reduceat(times, firsts), np.diff([*firsts, len(times)]))

    def _conflict(self, one: Stage, other: Stage) -> bool:
        a, b = self.places[one.name], self.places[other.name]
        return max(a.start, b.start) < min(a.stop, b.stop)


def queue(arrivals: Floats, seconds: Floats) -> Floats:
    """Ends of jobs that one server does in their order, each as soon as it is there: max(arrival, end of the last) + seconds."""
    worked = np.cumsum(seconds)
    ends: Floats = worked + np.maximum.accumulate(arrivals - worked + seconds)
    return ends


def _per_chunk(tree: Tree) -> Iterator[tuple[str, str]]:
    """Stages that take turns with the one before them within each chunk, and that one."""
    if isinstance(tree, Leaf):
        return
    yield from _per_chunk(tree.first)
    yield from _per_chunk(tree.second)
    if isinstance(tree, InTurn) and tree.per_chunk:
        *_, before = leaves(tree.first)
        yield next(iter(leaves(tree.second))).stage, before.stage

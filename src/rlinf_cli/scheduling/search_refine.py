"""From drafts to plans: divisions of the devices refined to single devices, chunks, and the numbers of devices that serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.search_costs import Costs, Floats, Ints
from rlinf_cli.scheduling.search_graph import Graph
from rlinf_cli.scheduling.search_shape import Cost, Evaluation
from rlinf_cli.scheduling.search_table import Draft
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide, Tree

ROUNDS = 30


@dataclass(frozen=True)
class Candidate:
    draft: Draft
    plan: Plan

    @property
    def seconds(self) -> float:
        """By the algebra, of an iteration but for what is the same for all."""
        return self.draft.seconds


class Refinement:
    """`kind`: "around" for synchronous plans, "occupied" for those with generation ahead."""

    def __init__(self, graph: Graph, costs: Costs, evaluation: Evaluation, kind: str) -> None:
        self._graph, self._costs, self._evaluation, self._kind = graph, costs, evaluation, kind

    def refined(self, draft: Draft, step: int) -> Draft:
        """The best that is reached by moving `step` devices between parts, then a quarter of that, down to one."""
        divisions, best = draft.divisions, self.seconds(draft)
        while step and divisions:
            tried = neighbours(divisions, step)
            for _ in range(ROUNDS):
                seconds = self._seconds(self._cost(draft, divisions + tried))
                if not (least := float(seconds.min())) < best * (1 - 1e-9):
                    break
                divisions, best = tuple((divisions + tried)[int(seconds.argmin())].tolist()), least
            step = max(1, step // 4) if step > 1 else 0
        return Draft(draft.shape, divisions, best)

    def seconds(self, draft: Draft) -> float:
        return float(self._seconds(self._cost(draft, np.array([draft.divisions], np.int64)))[0])

    def nearby(self, draft: Draft, step: int, most: int) -> list[Draft]:
        """Those of its neighbours that the algebra likes best."""
        divisions = draft.divisions + neighbours(draft.divisions, step)[1:]
        seconds = self._seconds(self._cost(draft, divisions))
        return [Draft(draft.shape, tuple(divisions[place].tolist()), float(seconds[place]))
                for place in np.argsort(seconds, kind="stable")[:most] if np.isfinite(seconds[place])]

    def name(self, draft: Draft) -> str:
        return shape_of(self._evaluation.tree(draft.shape, self._costs.most, draft.divisions, {})[0])

    def candidate(self, draft: Draft) -> Candidate:
        """A plan, with chunks for all that hands on more than one."""
        cost = self._cost(draft, np.array([draft.divisions], np.int64))
        tree, units = self._evaluation.tree(draft.shape, self._costs.most, draft.divisions, cost.chunks)
        samples = self._graph.problem.samples
        chunks = {stage.name: cost.chunks.get(place, samples) for place, stage in enumerate(self._graph.stages)}
        ahead = self._graph.problem.staleness if self._kind == "occupied" else 0
        return Candidate(draft, Plan(tree, chunks, ahead, units=units))

    def _cost(self, draft: Draft, divisions: Ints) -> Cost:
        """[tried, pairs]"""
        devices = np.full(len(divisions), self._costs.most)
        return self._evaluation.cost(draft.shape, devices, divisions.T)

    def _seconds(self, cost: Cost) -> Floats:
        """With generation ahead by S steps, a batch takes no more than S + 1 of them."""
        if self._kind == "around":
            return cost.round
        ahead = self._graph.problem.staleness + 1
        return np.maximum(cost.occupied, (cost.whole + self._graph.problem.sync_s) / ahead)


def neighbours(divisions: tuple[int, ...], step: int) -> Ints:
    """Moves of so many devices, none first, [moves, pairs]: at one division, or at two of them at once, there perhaps of twice as
    many, so that two parts can give to one or get from it."""
    alone = step * np.eye(len(divisions), dtype=np.int64)
    moves = [np.zeros(len(divisions), np.int64), *alone, *-alone]
    for one, other in permutations(range(len(divisions)), 2):
        moves += [sign * (times * alone[one] + turned * alone[other])
                  for sign, times, turned in product((1, -1), (1, 2), (1, -1)) if times == 2 or one < other]
    return np.array(moves)


def shape_of(tree: Tree) -> str:
    """The same for trees that differ in nothing but numbers of devices, or in how equal nodes are nested."""
    if isinstance(tree, Leaf):
        return tree.stage
    mark = "|" if isinstance(tree, SideBySide) else "~" if tree.per_chunk else ","
    parts = [shape_of(part) for part in _parts(tree, type(tree), isinstance(tree, InTurn) and tree.per_chunk)]
    return "(" + mark.join(sorted(parts) if mark == "|" else parts) + ")"


def _parts(tree: Tree, kind: type, per_chunk: bool) -> Iterator[Tree]:
    if type(tree) is kind and (isinstance(tree, SideBySide) or (isinstance(tree, InTurn) and tree.per_chunk == per_chunk)):
        yield from _parts(tree.first, kind, per_chunk)
        yield from _parts(tree.second, kind, per_chunk)
    else:
        yield tree

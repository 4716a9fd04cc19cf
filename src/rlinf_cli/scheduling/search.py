"""The fastest execution of a problem: by dynamic programming over all cuts of its graph, then by simulation of the best few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

import numpy as np

from rlinf_cli.scheduling.costs import fits
from rlinf_cli.scheduling.plan import Found, Mode, Plan, Prediction, Rejected
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.search_costs import Costs
from rlinf_cli.scheduling.search_graph import Graph
from rlinf_cli.scheduling.search_infeasible import infeasible
from rlinf_cli.scheduling.search_refine import Candidate, Refinement, shape_of
from rlinf_cli.scheduling.search_shape import Evaluation, One, Shape, Two
from rlinf_cli.scheduling.search_table import UNITS, Draft, Table
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import InTurn, Leaf, Tree, text

Simulate = Callable[[Problem, Plan], Prediction]

NEAR = 1.5
"""What the algebra finds slower than the best by this factor is not simulated, but for the pure modes."""
PURE = ("temporal", "spatial")
"""Modes that a user is always told of: the best plan of each."""
MOVES, TRIED = 24, 4
"""Neighbours of the best plan that are simulated, in all and before going to the best of them."""
MOST_UNITS = 512
"""Into which devices are divided where fewer allow no plan."""
MANY = 64
"""Devices above which a single one matters less, and a third as many neighbours are simulated."""


def search(problem: Problem, top: int = 8, simulate: Simulate = predict) -> Found:
    """The plan with the shortest iteration, with predictions for it and up to `top` runners-up. Raises CapacityError where no
    plan is possible, with what is in the way and the smallest change that would do."""
    return Search(problem, top, simulate).found()


class Search:
    def __init__(self, problem: Problem, top: int, simulate: Simulate) -> None:
        self._began = time.perf_counter()
        self._problem, self._top, self._simulate = problem, top, simulate
        self._graph, self._costs = Graph(problem), Costs(problem)
        self._evaluation = Evaluation(self._graph, self._costs, tight=True)
        self._refine = {kind: Refinement(self._graph, self._costs, self._evaluation, kind) for kind in ("around", "occupied")}
        self._known: dict[str, Prediction] = {}
        self.considered = 0

    def found(self) -> Found:
        candidates = self.candidates()
        if not candidates:
            raise infeasible(self._problem)
        pure, rejected = self._pure({one.plan.mode for one in candidates})
        plans = [(self._predicted(one.plan), one) for one in candidates]
        plan, leader = min(plans, key=lambda pair: _step_s(pair[0]))
        everything = [*(plan for plan, _ in plans), *map(self._predicted, pure.values()), self._moved(leader, plan)]
        ranked = self._distinct(sorted(everything, key=_step_s))
        kept = [plan for place, plan in enumerate(ranked[1:]) if place < self._top or plan.mode in PURE]
        return Found(ranked[0], [Rejected(plan, _slower(plan, ranked[0])) for plan in kept] + rejected,
                     self.considered, len(self._known), time.perf_counter() - self._began)

    def _distinct(self, ranked: list[Plan]) -> list[Plan]:
        """The best of each shape."""
        found: dict[str, Plan] = {}
        for plan in ranked:
            found.setdefault(_name(plan), plan)
        return list(found.values())

    def candidates(self) -> list[Candidate]:
        """Of each shape and mode the best by the algebra, the best first; `top` at most."""
        found: dict[str, Candidate] = {}
        for kind, refine in self._refine.items():
            if kind == "around" or self._may_run_ahead():
                for one in self._of_kind(kind, refine):
                    name = _name(one.plan)
                    if name not in found or one.seconds < found[name].seconds:
                        found[name] = one
        ranked = sorted(found.values(), key=lambda one: one.seconds)
        return [one for one in ranked if one.seconds <= NEAR * ranked[0].seconds][: self._top]

    def _of_kind(self, kind: str, refine: Refinement) -> Iterator[Candidate]:
        table, drafts = self._table(kind, refine)
        self.considered += table.considered
        step = -(-self._costs.most // table.units) if self._costs.most > table.units else 0
        firsts: dict[str, Draft] = {}
        for draft in drafts:
            firsts.setdefault(refine.name(draft), draft)
        for draft in list(firsts.values())[: self._top]:
            one = refine.candidate(refine.refined(draft, step))
            if np.isfinite(one.seconds):
                yield one

    def _table(self, kind: str, refine: Refinement) -> tuple[Table, list[Draft]]:
        """What stages leave on devices is taken into account only where the best plan without it has not enough memory; and
        fewer devices at a time only where there is no plan with more of them."""
        for units, tight in ((UNITS, False), (UNITS, True), (MOST_UNITS, True)):
            table = Table(self._graph, self._costs, tight, units)
            drafts = table.drafts(kind, NEAR)
            if drafts and refine.seconds(drafts[0]) <= drafts[0].seconds * (1 + 1e-9):
                break
        return table, drafts

    def _may_run_ahead(self) -> bool:
        return bool(self._problem.staleness and self._graph.generation and self._graph.training)

    def _pure(self, known: set[Mode]) -> tuple[dict[str, Plan], list[Rejected]]:
        """All in turn on the same devices; each on its own, unless that is known. What has not enough memory is rejected for
        that."""
        plans: dict[str, Plan] = {}
        rejected = []
        spatial = None if "spatial" in known else self._spatial()
        for name, plan in (("temporal", temporal(self._problem, self._costs)), ("spatial", spatial)):
            if plan is None:
                continue
            if why := fits(self._problem, plan.tree):
                rejected.append(Rejected(plan, why))
            else:
                plans[name] = plan
        return plans, rejected

    def _spatial(self) -> Plan | None:
        """From shares of the devices that are proportional to the work."""
        most, refine = self._costs.most, self._refine["around"]
        shape, divisions = beside(self._graph, shares(self._problem, self._costs))
        draft = refine.refined(Draft(shape, divisions, np.inf), max(1, most // 8))
        plan = refine.candidate(draft).plan
        places = [devices for devices in plan.devices.values() if devices]
        is_whole = len(places) == sum(stage.needs_device for stage in self._problem.stages)
        return plan if is_whole else None

    def _predicted(self, plan: Plan) -> Plan:
        key = f"{text(plan.tree)} {sorted(plan.chunk.items())} {plan.staleness}"
        if key not in self._known:
            self._known[key] = self._simulate(self._problem, plan)
        return replace(plan, prediction=self._known[key])

    def _moved(self, leader: Candidate, plan: Plan) -> Plan:
        """The best that is reached by moving devices between parts, as simulation tells. The algebra says what to try."""
        refine, best, draft = self._refine["occupied" if plan.staleness else "around"], plan, leader.draft
        step, left = max(1, self._costs.most // 16), MOVES if self._costs.most <= MANY else MOVES // 3
        nearby = refine.nearby(draft, step, MOVES)
        while left > 0 and nearby:
            tried, nearby = nearby[:TRIED], nearby[TRIED:]
            left -= len(tried)
            plans = [self._predicted(refine.candidate(one).plan) for one in tried]
            first = min(range(len(plans)), key=lambda place: _step_s(plans[place]))
            if _step_s(plans[first]) < _step_s(best):
                best, draft = plans[first], tried[first]
                nearby = refine.nearby(draft, step, MOVES)
            elif step > 1:
                step = max(1, step // 4)
                nearby = refine.nearby(draft, step, MOVES)
        return best


def temporal(problem: Problem, costs: Costs) -> Plan | None:
    """All in turn, on as many devices as serve best; None where no number serves all."""
    seconds = sum(curve[1:] for stage, curve in zip(problem.stages, costs.alone) if stage.needs_device)
    if not np.isfinite(seconds).any():
        return None
    devices = int(np.argmin(seconds)) + 1
    parts: list[Tree] = [Leaf(stage.name, devices if stage.needs_device else 0) for stage in problem.stages]
    return Plan(reduce(InTurn, parts), {stage.name: problem.samples for stage in problem.stages})


def shares(problem: Problem, costs: Costs) -> list[int]:
    """Devices of each stage, in proportion to its work; at least one for who needs any."""
    counts = np.arange(1, costs.most + 1)
    work = [float((curve[1:] * counts).min()) if stage.needs_device else 0.0 for stage, curve in zip(problem.stages, costs.alone)]
    return [max(1, int(costs.most * mine / max(sum(work), 1e-12))) if stage.needs_device else 0
            for stage, mine in zip(problem.stages, work)]


def beside(graph: Graph, counts: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """All side by side, from producers to consumers, and how many devices the first of each pair has."""
    last = len(counts) - 1
    shape, rest = cast(Shape, One(last)), 1 << last
    for place in range(last - 1, -1, -1):
        shape = Two(One(place), shape, True, graph.cut(1 << place, rest))
        rest |= 1 << place
    return shape, tuple(counts[:-1])


def _name(plan: Plan) -> str:
    return f"{shape_of(plan.tree)} {plan.staleness}"


def _step_s(plan: Plan) -> float:
    assert plan.prediction is not None
    return plan.prediction.step_s


def _slower(plan: Plan, best: Plan) -> str:
    assert plan.prediction is not None
    bound = f", bound by {plan.prediction.bound_by}" if plan.prediction.bound_by else ""
    return f"{_step_s(plan) / _step_s(best) - 1:+.0%}{bound}".replace("+0%", "as fast").replace("-0%", "as fast")

"""The fastest execution of a problem: by dynamic programming over all cuts of its graph, then by simulation of the best few."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import cast

import numpy as np

from rlinf_cli.scheduling.costs import feasible, fits
from rlinf_cli.scheduling.plan import Found, Mode, Plan, Prediction, Rejected
from rlinf_cli.scheduling.problem import Problem, Stage
from rlinf_cli.scheduling.search_costs import Costs, Ints
from rlinf_cli.scheduling.search_graph import Graph
from rlinf_cli.scheduling.search_infeasible import infeasible
from rlinf_cli.scheduling.search_refine import Candidate, Refinement, shape_of
from rlinf_cli.scheduling.search_shape import Evaluation, One, Shape, Two
from rlinf_cli.scheduling.search_table import UNITS, Draft, Table
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import InTurn, Leaf, Tree, leaves, text

Simulate = Callable[[Problem, Plan], Prediction]

NEAR = 1.5
"""What the algebra finds slower than the best by this factor is not simulated, but for the pure modes."""
PURE = ("temporal", "spatial")
"""Modes that a user is always told of: the best plan of each."""
MOVES, TRIED = 24, 4
"""Neighbours of the best plan that are simulated, in all and before going to the best of them."""
MOST_UNITS = 512
"""Into which devices are divided where fewer allow no plan."""
AHEAD = 0.01
"""Share of an iteration that each step has to save by which generation is ahead: what is trained is so much older."""
MANY = 256
"""Devices above which a single one matters less, and a third as many neighbours are simulated, of the best plan only, not of
the best of another mode too;"""
LARGE = 4096
"""and still fewer of larger batches, as each takes longer, down to `TRIED`."""


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
        first = min(plans, key=lambda pair: _rank(pair[0]))
        others = [pair for pair in plans if pair[0].mode != first[0].mode and self._costs.most <= MANY]
        leaders = [first, *sorted(others, key=lambda pair: _rank(pair[0]))[:1]]
        tries = MOVES // len(leaders)
        if self._costs.most > MANY:
            tries = max(TRIED, min(MOVES // 3, MOVES * LARGE // self._problem.samples))
        moved = [self._ahead_by_less(self._moved(leader, plan, tries)) for plan, leader in leaders]
        everything = [*(plan for plan, _ in plans), *map(self._predicted, pure.values()), *moved]
        ranked = self._distinct(sorted([*everything, *self._spreads(everything)], key=_rank))
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
            if why := fits(self._problem.spread(plan.units), plan.tree):
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
        key = f"{text(plan.tree)} {sorted(plan.chunk.items())} {plan.staleness} {sorted(plan.units.items())}"
        if key not in self._known:
            self._known[key] = self._simulate(self._problem, plan)
        return replace(plan, prediction=self._known[key])

    def _moved(self, leader: Candidate, plan: Plan, left: int) -> Plan:
        """The best that so many tries come to by moving devices between parts, as simulation tells. The algebra says what to
        try."""
        refine, best, draft = self._refine["occupied" if plan.staleness else "around"], plan, leader.draft
        step = max(1, self._costs.most // 16)
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

    def _ahead_by_less(self, plan: Plan) -> Plan:
        """With generation ahead by fewer steps, where that is hardly slower."""
        return min([plan, *(self._predicted(replace(plan, staleness=steps)) for steps in range(1, plan.staleness))], key=_rank)

    def _spreads(self, plans: Sequence[Plan]) -> Iterator[Plan]:
        """The best of all and of the pure modes, with other numbers of devices a rank or replica, as simulation tells."""
        alike: dict[str, list[Stage]] = {}
        for stage in self._problem.stages:
            if stage.spreads:
                alike.setdefault(stage.weights or stage.name, []).append(stage)
        modes = {mode: [plan for plan in plans if plan.mode == mode] for mode in PURE}
        for leaders in (plans, *modes.values()) if alike else ():
            if leaders:
                yield self._spread(min(leaders, key=_rank), list(alike.values()))

    def _spread(self, plan: Plan, alike: Sequence[Sequence[Stage]]) -> Plan:
        """Those of one stage at a time, or of all that have the same weights."""
        for stages in alike:
            for one in stages[0].choices:
                units = {**plan.units, **{stage.name: one.unit for stage in stages}}
                other = replace(plan, tree=rounded(plan.tree, units), units=units)
                if _is_possible(self._problem.spread(units), other):
                    plan = min(plan, self._predicted(other), key=_step_s)
        return plan


def rounded(tree: Tree, units: Mapping[str, int]) -> Tree:
    """With no more devices than are used by ranks of so many."""
    if isinstance(tree, Leaf):
        unit = units.get(tree.stage, 1)
        return Leaf(tree.stage, tree.devices // unit * unit)
    return replace(tree, first=rounded(tree.first, units), second=rounded(tree.second, units))


def _is_possible(problem: Problem, plan: Plan) -> bool:
    counts = {leaf.stage: leaf.devices for leaf in leaves(plan.tree)}
    return all(feasible(problem, stage, counts[stage.name])[-1] for stage in problem.stages) and not fits(problem, plan.tree)


def temporal(problem: Problem, costs: Costs) -> Plan | None:
    """All in turn, on as many devices as serve best; None where no number serves all. Where memory allows none, the plan that
    would be the best if it did."""
    places = [place for place, stage in enumerate(problem.stages) if stage.needs_device]
    left = sum(map(costs.left, places))
    for reserved in ([left - costs.left(place) for place in places], [-np.inf] * len(places)):
        curves = [costs.exactly(place, amount) for place, amount in zip(places, reserved)]
        seconds = np.sum([alone for alone, _ in curves], axis=0)
        if np.isfinite(seconds[1:]).any():
            return _in_turn(problem, int(seconds[1:].argmin()) + 1, [units for _, units in curves])
    return None


def _in_turn(problem: Problem, devices: int, units: Sequence[Ints]) -> Plan:
    parts: list[Tree] = [Leaf(stage.name, devices if stage.needs_device else 0) for stage in problem.stages]
    named = zip((stage for stage in problem.stages if stage.needs_device), units)
    chunk = {stage.name: problem.samples for stage in problem.stages}
    return Plan(reduce(InTurn, parts), chunk, units={stage.name: int(those[devices]) for stage, those in named if stage.spreads})


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


def _rank(plan: Plan) -> float:
    """Seconds of an iteration, and what it costs to be ahead."""
    return _step_s(plan) * (1 + AHEAD) ** plan.staleness


def _slower(plan: Plan, best: Plan) -> str:
    assert plan.prediction is not None
    bound = f", bound by {plan.prediction.bound_by}" if plan.prediction.bound_by else ""
    return f"{_step_s(plan) / _step_s(best) - 1:+.0%}{bound}".replace("+0%", "as fast").replace("-0%", "as fast")

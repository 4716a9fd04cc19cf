"""What `rlinf simulate` does: execute a plan, perhaps for other devices or lengths, in a simulation, and write its trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_cli.config.load import check
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.flow.placement import RoleSpec
from rlinf_cli.flow.placement_text import load_placement
from rlinf_cli.flow.timeline import Call, CallTiming, Kind, Span
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.runs.breakdown import Placed, StepTime, break_down
from rlinf_cli.runs.files import explained
from rlinf_cli.runs.naming import RECORD
from rlinf_cli.runs.planning import noted, plan_of, problem_for
from rlinf_cli.runs.profiles import read_profile
from rlinf_cli.runs.trace import TraceWriter
from rlinf_cli.scheduling import plan_file, simulate_events
from rlinf_cli.scheduling.costs import device_groups, feasible
from rlinf_cli.scheduling.explain import GroupTime, times
from rlinf_cli.scheduling.lengths import Ints, capped, constant, lognormal, pareto
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.plan_file import PlanFile, is_plan
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.simulate_events import Simulation
from rlinf_cli.scheduling.tree import Leaf, Tree, text
from rlinf_cli.workflows.base import Role

POOL = 4096
"""Assumed lengths that small batches are drawn from."""
LENGTHS = {"constant": "TOKENS", "lognormal": "MEAN,SIGMA", "pareto": "LEAST,ALPHA"}
"""Distributions that `--lengths` knows, and their parameters."""
MOST_DEVICES = 1 << 20
"""Of a placement: as many as it names are there."""
_WAITS: Mapping[str, Kind] = {"switch": "offload", "sync": "sync"}


@dataclass(frozen=True)
class Simulated:
    """A plan that has been executed in a simulation. `plan.prediction` is what was simulated."""

    problem: Problem
    plan: Plan
    simulation: Simulation
    profile: str
    predicted_s: float
    """What a search takes for it."""

    @property
    def groups(self) -> list[GroupTime]:
        """Where the devices' time goes."""
        return times(self.plan)

    @property
    def tokens_per_s(self) -> float:
        """Of responses."""
        return self.problem.tokens / self.simulation.step_s

    def document(self) -> dict[str, Any]:
        """For JSON."""
        prediction = self.plan.prediction
        assert prediction is not None
        return {"devices": self.problem.devices, "samples": self.problem.samples, "tree": text(self.plan.tree),
                "mode": self.plan.mode, "chunk": dict(self.plan.chunk), "staleness": self.plan.staleness,
                "step_s": prediction.step_s, "predicted_s": self.predicted_s, "tokens_per_s": self.tokens_per_s,
                "iterations": len(self.simulation.ends), "busy": {name: dict(states) for name, states in prediction.busy.items()},
                "memory": dict(prediction.memory), "bound_by": prediction.bound_by, "profile": self.profile,
                "source": prediction.source, "hardware": self.problem.hardware, "extrapolated": list(prediction.extrapolated),
                "notes": list(self.problem.notes)}


def simulate_plan(path: Path, config: RunConfig, plugins: Plugins, source: str | None = None, devices: int = 0, lengths: str = "",
                  iterations: int = 0, shape: str = "") -> Simulated:
    """Execute a plan file, or the placement of a run directory, in a simulation of the run that a configuration describes.

    `source`: profile, as `read_profile` takes it; None: the plan's own · `devices`: another number of them, to which the plan is
    stretched · `lengths`: of responses, as `assumed` takes it · `iterations`: 0: as many as show the long run · `shape`: name of
    the model, if it is known by its shape only. Raises UsageError or CapacityError for a plan that cannot be executed.
    """
    check(config)
    roles = plugins.get("workflow", config.workflow).load()().roles(config)

    def problem_on(count: int, profile: str) -> tuple[Problem, str]:
        known = read_profile(config, roles, source or profile or None, count, shape or config.model.name)
        problem = noted(problem_for(config, roles, count, known.profile), known.note)
        return (_with_lengths(problem, lengths, config) if lengths else problem), known.name

    file = _file_of(path, roles, lambda count: problem_on(count, "")[0])
    problem, name = problem_on(devices or file.devices, file.profile)
    if devices and devices != file.devices:
        file = stretched(file, problem)
    plan = plan_file.validate(file, problem)
    predicted, simulation = predict(problem, plan), simulate_events.run(problem, plan, iterations)
    shown = replace(predicted, step_s=simulation.step_s, busy=simulation.busy(plan.tree))
    return Simulated(problem, replace(plan, prediction=shown), simulation, name, predicted.step_s)


# ---- the plan ----


def _file_of(path: Path, roles: Sequence[Role], problem_on: Callable[[int], Problem]) -> PlanFile:
    """A plan file as it is, a placement as a plan."""
    if (path / RECORD).exists():
        path = path / "plan.yaml"
    if is_plan(path) or not path.is_file():
        return plan_file.load(path)
    specs = [RoleSpec(role.name, role.ranks, role.stateful, role.chunked) for role in roles]
    placement = load_placement(path, specs, MOST_DEVICES)
    count = 1 + max(device for role in placement for device in placement.devices(role))
    return PlanFile(plan_of(placement, problem_on(count)), count, path=path)


def profile_of(path: Path) -> str:
    """What a plan file says that it was made with; empty where it says nothing, or is none."""
    return plan_file.load(path).profile if is_plan(path) else ""


def stretched(file: PlanFile, problem: Problem) -> PlanFile:
    """The same tree on all devices of the problem: each role has the same share of them as before, rounded down to what it can
    use."""
    units = file.units(problem)
    tree = _stretch(file.plan.tree, problem.spread(units), problem.devices / file.devices)
    return replace(file, plan=replace(file.plan, tree=tree, units=units), devices=problem.devices, roles={})


def _stretch(tree: Tree, problem: Problem, factor: float) -> Tree:
    if isinstance(tree, Leaf):
        if not tree.devices:
            return tree
        stage = next((one for one in problem.stages if one.name == tree.stage), None)
        count = int(tree.devices * factor + 1e-9)
        usable = np.flatnonzero(feasible(problem, stage, count)).tolist() if stage else []
        return Leaf(tree.stage, max(1, *usable, count if len(usable) < 2 else 0))
    return replace(tree, first=_stretch(tree.first, problem, factor), second=_stretch(tree.second, problem, factor))


# ---- lengths ----


def assumed(spec: str, samples: int, seed: int) -> Ints:
    """Lengths of so many responses, [samples]: `constant:500`, `lognormal:1000,0.8` (mean, standard deviation of the logarithm),
    `pareto:200,1.5` (least, exponent). Raises UsageError for anything else."""
    name, _, words = spec.partition(":")
    if name not in LENGTHS:
        raise UsageError(f"--lengths {spec}: there is no distribution '{name}'{did_you_mean(name, LENGTHS)}; write one of "
                         f"{', '.join(f'{known}:{parameters}' for known, parameters in LENGTHS.items())}")
    try:
        values = [float(word) for word in words.split(",")]
    except ValueError:
        values = []
    if len(values) != LENGTHS[name].count(",") + 1 or not all(0 < value < float("inf") for value in values):
        raise UsageError(f"--lengths {spec}: positive numbers are needed as in {name}:{LENGTHS[name]}")
    if name == "constant":
        return constant(max(1, round(values[0])), samples)
    make = lognormal if name == "lognormal" else pareto
    return make(values[0], values[1], samples, seed=seed)


def _with_lengths(problem: Problem, spec: str, config: RunConfig) -> Problem:
    """With these lengths instead of the measured ones, cut where the run cuts them."""
    lengths, _ = capped(assumed(spec, problem.samples, config.seed), config.rollout.max_new_tokens)
    pool, _ = capped(assumed(spec, max(POOL, problem.samples), config.seed), config.rollout.max_new_tokens)
    return replace(problem, lengths=lengths, pool=None if problem.pool is None else pool,
                   notes=(*problem.notes, f"lengths are assumed: {spec}"))


# ---- the trace ----


def write_trace(simulated: Simulated, path: Path) -> None:
    """The simulated steps as a trace like a run's: a process for each group of devices, a thread for each stage on it. Raises
    UsageError where it cannot be written."""
    failed: list[str] = []
    with explained(f"cannot write {path}", UsageError):
        path.unlink(missing_ok=True)
    groups = device_groups(simulated.plan.tree)
    names = {place: f"device{'s' * (len(devices) > 1)} {plan_file.ranges(devices)}" for place, (devices, _) in enumerate(groups)}
    ends = simulated.simulation.ends
    with TraceWriter(path, len(ends), 0, names, failed.append) as writer:
        for number, times in enumerate(_step_times(simulated)):
            writer.step(number + 1, {}, times)
    if failed:
        raise UsageError(failed[0])


def _step_times(simulated: Simulated) -> Iterator[StepTime]:
    """A call is told with the step in whose time it ended."""
    ends = (0.0, *simulated.simulation.ends)
    calls = list(_calls(simulated))
    for began, ended in pairwise(ends):
        near = [one for one in calls if _ended(one) > began and one.call.timing.began < ended]
        found = break_down(near, range(len(device_groups(simulated.plan.tree))), began, ended)
        yield replace(found, calls=[one for one in near if _ended(one) <= ended])


def _calls(simulated: Simulated) -> Iterator[Placed]:
    """Of each stage in each step: from its first span to its last; between them it waits for data."""
    places = {stage: tuple(place for place, (_, users) in enumerate(device_groups(simulated.plan.tree)) if stage in users)
              for stage in simulated.plan.devices}
    spans: dict[tuple[str, int, bool], list[simulate_events.Span]] = {}
    for span in simulated.simulation.spans:
        spans.setdefault((span.stage, span.step, span.state == "sync"), []).append(span)
    for (stage, _, syncs), theirs in spans.items():
        if places.get(stage):
            yield Placed(Call(stage, 0, "weights" if syncs else stage, _timing(theirs)), places[stage])


def _timing(spans: Sequence[simulate_events.Span]) -> CallTiming:
    began, waits, reached = spans[0].began, list[Span](), spans[0].began
    for span in spans:
        if span.began > reached + 1e-9:
            waits.append((reached - began, span.began - began, "wait_data"))
        if span.state in _WAITS:
            waits.append((span.began - began, span.ended - began, _WAITS[span.state]))
        reached = span.ended
    return CallTiming(began, reached - began, tuple(waits))


def _ended(placed: Placed) -> float:
    return placed.call.timing.began + placed.call.timing.total

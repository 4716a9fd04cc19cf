"""Why there is no plan, and the smallest change that would make one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rlinf_cli.errors import CapacityError
from rlinf_cli.scheduling.costs import devices_of_unit, feasible, memory_curve
from rlinf_cli.scheduling.problem import Problem, Stage
from rlinf_cli.scheduling.search_costs import Costs
from rlinf_cli.scheduling.search_graph import Graph
from rlinf_cli.scheduling.search_table import Table

UNITS = 512
FURTHER = 64
"""How many times the devices that there are a change may ask for."""


def infeasible(problem: Problem) -> CapacityError:
    """In a sentence: which stage or which stages, what they lack, and how much more of it would do."""
    devices = f"{problem.devices} device{'s' * (problem.devices != 1)}"
    why = next(filter(None, (_alone(problem, stage) for stage in problem.stages)), "") or _together(problem)
    return CapacityError(f"no placement on {devices}: {why}")


def _alone(problem: Problem, stage: Stage) -> str:
    """What a stage lacks even if it had all devices for itself, whatever it can choose; empty if nothing."""
    reasons = [_lacking(problem, one) for one in stage.choices]
    return "" if "" in reasons else reasons[-1]


def _lacking(problem: Problem, stage: Stage) -> str:
    counts = np.flatnonzero(feasible(problem, stage, problem.devices * FURTHER))
    usable = counts[counts <= problem.devices]
    if not len(usable):
        needed = f"{counts[0]} devices would do" if len(counts) else "no number of devices would do"
        return f"{stage.name} can use {_countable(stage)}; {needed}"
    loaded, _ = memory_curve(stage, int(counts[-1]))
    best, memory = int(usable[loaded[usable].argmin()]), problem.device_memory
    if loaded[best] <= memory:
        return ""
    enough = counts[loaded[counts] <= memory]
    more = f", or {enough[0]} devices" if len(enough) else ""
    return (f"{stage.name} needs {_gb(loaded[best])} on each of {best}, and a device has {_gb(memory)}; "
            f"{_gb(loaded[best] - memory)} more on each would do{more}")


def _countable(stage: Stage) -> str:
    if stage.counts:
        return "only " + ", ".join(map(str, stage.counts)) + " of them"
    return f"only multiples of {devices_of_unit(stage)}"


def _together(problem: Problem) -> str:
    """Each would fit, but not with what the others leave on its devices or take."""
    names = ", ".join(stage.name for stage in problem.stages if stage.needs_device)
    changes = []
    memory = _least(problem.device_memory, lambda amount: is_feasible(replace(problem, device_memory=amount)), 1e7)
    if memory is not None:
        changes.append(f"{_gb(memory - problem.device_memory)} more on each")
    devices = _least(problem.devices, lambda count: is_feasible(replace(problem, devices=int(count))), 1.0)
    if devices is not None:
        changes.append(f"{int(devices)} devices")
    would = " or ".join(changes) + " would do" if changes else "neither more of them nor more memory would do"
    return f"{names} together do not fit into {_gb(problem.device_memory)} on each; {would}"


def is_feasible(problem: Problem) -> bool:
    """Whether there is any plan."""
    return Table(Graph(problem), Costs(problem, sizes=()), tight=True, units=min(UNITS, problem.devices)).best() is not None


def _least(given: float, would_do: Callable[[float], bool], step: float) -> float | None:
    """The least amount above the given one that would do, to within a step; None where 64 times as much would not."""
    below, above = given, given + step
    while not would_do(above):
        below, above = above, given + 2 * (above - given)
        if above > FURTHER * given or not np.isfinite(above):
            return None
    while above - below > step:
        middle = below + (above - below) // (2 * step) * step
        if middle <= below:
            break
        below, above = (below, middle) if would_do(middle) else (middle, above)
    return above


def _gb(amount: float) -> str:
    return f"{amount / 1e9:.2f} GB"

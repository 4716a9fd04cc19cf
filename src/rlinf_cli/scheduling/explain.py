"""What a search came to, for people: plans side by side, where each device's time goes, and why the others were not chosen."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlinf_cli.scheduling.costs import device_groups
from rlinf_cli.scheduling.plan import Found, Plan, Prediction, Rejected
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.tree import Leaf, SideBySide, Tree, leaves, text, width

HARDLY = 0.005
"""Plans whose times differ by less than this share are equally fast."""


@dataclass(frozen=True)
class Row:
    """A plan in a table."""

    mode: str
    plan: str
    """`rollout 40 | (inference, train) 24`."""
    step_s: float
    behind: float
    """Share by which it is slower than the chosen one."""
    bound_by: str
    memory: float
    """Most bytes on a device; 0 where it is not known."""
    verdict: str


def rows(found: Found, problem: Problem, given: Plan | None = None) -> list[Row]:
    """The chosen plan, then the others from fast to slow; last those that cannot be executed. `given`: one of the others, that
    somebody asked for."""
    best = found.best
    chosen = "chosen, as asked for" if given is not None and label(given) == label(best) else "chosen"
    return [row(best, best, chosen), *(row(other.plan, best, _verdict(problem, best, other, given)) for other in ranked(found))]


def ranked(found: Found) -> list[Rejected]:
    """The others from fast to slow, of those that look alike the fastest."""
    fastest: dict[str, Rejected] = {}
    for other in sorted(found.others, key=lambda other: predicted(other.plan).step_s):
        fastest.setdefault(label(other.plan), other)
    return [other for name, other in fastest.items() if name != label(found.best)]


def _verdict(problem: Problem, best: Plan, other: Rejected, given: Plan | None) -> str:
    reason = other.why if other.plan.prediction is None else why(problem, best, other.plan)
    return f"as asked for: {reason}" if given is not None and label(given) == label(other.plan) else reason


def row(plan: Plan, best: Plan, verdict: str) -> Row:
    prediction = predicted(plan)
    behind = prediction.step_s / predicted(best).step_s - 1
    memory = max(prediction.memory.values(), default=0.0)
    return Row(plan.mode, label(plan), prediction.step_s, behind, prediction.bound_by, memory, verdict)


def predicted(plan: Plan) -> Prediction:
    """Of a plan that cannot be executed: that it takes for ever."""
    return plan.prediction or Prediction(math.inf)


def label(plan: Plan) -> str:
    """The tree without what takes no devices, their numbers once where neighbours have the same, and how far ahead it runs."""
    ahead = f", {plan.staleness} ahead" if plan.staleness else ""
    return _label(_with_devices(plan.tree)) + ahead


def _with_devices(tree: Tree) -> Tree:
    if isinstance(tree, Leaf) or not width(tree.first) or not width(tree.second):
        return tree if isinstance(tree, Leaf) else _with_devices(tree.first if width(tree.first) else tree.second)
    return replace(tree, first=_with_devices(tree.first), second=_with_devices(tree.second))


def _label(tree: Tree) -> str:
    if isinstance(tree, Leaf):
        return text(tree)
    parts = list(leaves(tree))
    if len({leaf.devices for leaf in parts}) == 1 and "|" not in text(tree):
        return f"({', '.join(leaf.stage for leaf in parts)}) {parts[0].devices}"
    mark = " | " if isinstance(tree, SideBySide) else ", "
    return mark.join(_label(part) if isinstance(part, Leaf) or type(part) is type(tree) else _enclosed(_label(part))
                     for part in (tree.first, tree.second))


def _enclosed(words: str) -> str:
    return words if words.startswith("(") and "(" not in words[1:] and not words.endswith(")") else f"({words})"


# ---- why ----


def why(problem: Problem, best: Plan, other: Plan) -> str:
    """What of a plan takes longer than in the chosen one: the largest part of the difference. All parts of all devices' time
    add up, so that the difference is fully shared out among them."""
    slower = predicted(other).step_s - predicted(best).step_s
    if slower <= HARDLY * predicted(best).step_s:
        return "as fast as the chosen one" if slower > 0 else "as fast"
    mine, its = _parts(problem, best), _parts(problem, other)
    excess = {part: seconds - mine.get(part, 0.0) for part, seconds in its.items()}
    part = max(excess, key=lambda name: excess[name], default="")
    if not excess or excess[part] <= 0:
        return f"{seconds_text(slower)} slower"
    return _sentence(problem, best, other, part, its[part])


def _parts(problem: Problem, plan: Plan) -> dict[str, float]:
    """What the devices do: state -> seconds, a mean over all devices."""
    found: dict[str, float] = {}
    prediction, used = predicted(plan), 0
    for group, states in prediction.busy.items():
        devices = group_width(plan, group)
        used += devices
        for state, seconds in states.items():
            found[state] = found.get(state, 0.0) + seconds * devices / problem.devices
    if used and used < problem.devices:
        found["idle"] = found.get("idle", 0.0) + prediction.step_s * (problem.devices - used) / problem.devices
    return found


def group_width(plan: Plan, group: str) -> int:
    """Devices of a group `a+b`: those that all of these stages have and no other one has."""
    return sum(len(devices) for devices, users in device_groups(plan.tree) if "+".join(users) == group)


def _sentence(problem: Problem, best: Plan, other: Plan, part: str, seconds: float) -> str:
    if part == "idle":
        return _idle(problem, other)
    if part == "switch":
        return f"devices change hands for {seconds_text(seconds)} of {seconds_text(predicted(other).step_s)}"
    if part == "sync":
        return f"devices wait for new weights for {seconds_text(seconds)} of {seconds_text(predicted(other).step_s)}"
    before, after = (len(plan.devices.get(part, ())) for plan in (best, other))
    took, takes = (predicted(plan).stages.get(part, 0.0) for plan in (best, other))
    if after <= before or takes >= took:
        return f"{part} takes {seconds_text(takes)} on {after} devices (chosen: {seconds_text(took)} on {before})"
    return f"{part} makes little of {after} devices: {seconds_text(takes)} instead of {seconds_text(took)} on {before}"


def _idle(problem: Problem, plan: Plan) -> str:
    """Who waits most, and for whom."""
    prediction = predicted(plan)
    idle = {group: states.get("idle", 0.0) * group_width(plan, group) for group, states in prediction.busy.items()}
    spare = problem.devices - sum(group_width(plan, group) for group in prediction.busy)
    most = max(idle, key=lambda group: idle[group], default="")
    if not most or spare * prediction.step_s > idle[most]:
        return f"{spare} devices are left over"
    devices, waits = group_width(plan, most), prediction.busy[most]["idle"]
    share = f"{waits / prediction.step_s * 100:.0f} % of the time"
    if plan.mode == "temporal":
        return f"its {devices} devices are idle for {share}, while the last of a batch is done"
    slowest = max(prediction.stages, key=lambda stage: prediction.stages[stage], default="")
    reason = f": {slowest} takes {seconds_text(prediction.stages[slowest])}" if slowest and slowest not in most.split("+") else ""
    return f"{most.replace('+', ' and ')} idle for {share} on {devices} device{'s' * (devices != 1)}{reason}"


# ---- where the time goes ----


@dataclass(frozen=True)
class GroupTime:
    """The devices of a group in an iteration of the chosen plan."""

    group: str
    devices: int
    states: Mapping[str, float]
    """Seconds; they add up to an iteration."""
    memory: float


def times(plan: Plan) -> list[GroupTime]:
    """Group by group."""
    prediction = predicted(plan)
    return [GroupTime(group, group_width(plan, group), states, prediction.memory.get(group, 0.0))
            for group, states in prediction.busy.items()]


def states(groups: list[GroupTime]) -> list[str]:
    """What any group spends time on: stages first, then `switch`, `sync` and `idle`."""
    names = dict.fromkeys(state for group in groups for state, seconds in group.states.items() if seconds > 1e-9)
    last = ("switch", "sync", "idle")
    return [name for name in names if name not in last] + [name for name in last if name in names]


def footer(found: Found, problem: Problem, profile: str = "") -> Iterator[str]:
    """Lines under the tables: where the numbers come from, and how the search went. `profile`: its name or file."""
    yield from sources(problem, predicted(found.best), profile)
    if found.best.units:
        yield f"devices a rank or replica: {', '.join(f'{stage} {unit}' for stage, unit in found.best.units.items())}"
    yield f"search: {found.seconds * 1000:.0f} ms, {found.considered:,} plans, {found.simulated:,} simulated"


def sources(problem: Problem, prediction: Prediction, profile: str = "") -> Iterator[str]:
    """Lines that say where the numbers come from, what is extrapolated and what was assumed."""
    on = f" on {problem.hardware}" if problem.hardware else ""
    name = f" {profile}" if profile else ""
    origin = {"measured": f"measured{on}", "analytic": f"analytic (roofline){on}, not measured on your machine",
              "emulated": f"emulated{on}"}[problem.source]
    yield f"profile:{name} {origin}" if name else f"profile: {origin}"
    for words in prediction.extrapolated:
        yield f"extrapolated: {words}"
    for note in problem.notes:
        if problem.source != "analytic" or not note.startswith("analytic"):
            yield f"note: {note}"


def document(found: Found, problem: Problem, profile: str = "", given: Plan | None = None) -> dict[str, Any]:
    """All of it, for JSON."""
    plans = [found.best, *(other.plan for other in ranked(found))]
    return {
        "devices": problem.devices, "samples": problem.samples, "group": problem.group, "profile": profile,
        "source": problem.source, "hardware": problem.hardware, "notes": list(problem.notes),
        "plans": [_plan(plan, one) for plan, one in zip(plans, rows(found, problem, given), strict=True)],
        "search": {"seconds": found.seconds, "considered": found.considered, "simulated": found.simulated},
    }


def _plan(plan: Plan, shown: Row) -> dict[str, Any]:
    prediction = predicted(plan)
    return {
        "mode": plan.mode, "tree": text(plan.tree), "chunk": dict(plan.chunk), "staleness": plan.staleness,
        "units": dict(plan.units),
        "step_s": prediction.step_s, "behind": shown.behind, "bound_by": prediction.bound_by, "verdict": shown.verdict,
        "memory": dict(prediction.memory), "busy": {group: dict(states) for group, states in prediction.busy.items()},
        "stages": dict(prediction.stages), "extrapolated": list(prediction.extrapolated),
    }


def seconds_text(seconds: float) -> str:
    """`574 s`, `5.31 s`, `81 ms`."""
    return f"{seconds * 1000:.3g} ms" if seconds < 0.1 else f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"

"""Plans as files that people can read and edit.

A plan file is a YAML mapping::

    tree: rollout 40 | reward | (reference 24, actor 24)   # | side by side, `,` in turn: role and devices
    devices: 64
    roles:                                        # which devices those are, as in a placement file; may be left out
      rollout: 0-39 by 2                          # ranks of two devices each; or a list, a rank an entry: [0-1, 2-3, ...]
      reference: 40-63                            # else a rank on each device
      actor: 40-63
    chunk: {reference: 64, actor: 128}            # samples that a role takes at once
    staleness: 0
    profile: analytic:h100
    hardware: 64 h100
    prediction: {step_s: 574.1, bound_by: rollout tail 38 %}

`tree` decides; roles that take no devices may be left out. `roles` is there to move a role to other devices: it must give each
as many as the tree does, and two roles that are side by side no device in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from rlinf_cli.errors import CapacityError, UsageError, did_you_mean
from rlinf_cli.scheduling.costs import devices_of_unit, feasible, fits
from rlinf_cli.scheduling.plan import Plan, Prediction
from rlinf_cli.scheduling.plan_reader import Ranks, Reader, entries_of, root_of
from rlinf_cli.scheduling.problem import Problem, Stage
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide, Tree, layout, leaves, text, width

KEYS = ("tree", "devices", "roles", "chunk", "staleness", "profile", "hardware", "prediction")


@dataclass(frozen=True)
class PlanFile:
    """A plan, and what it was made from."""

    plan: Plan
    devices: int
    """That it was made for."""
    profile: str = ""
    """A file, or `analytic:h100`."""
    hardware: str = ""
    roles: Mapping[str, Ranks] = field(default_factory=dict)
    """Role -> its ranks, and their devices; one that is not named has those of the tree's layout."""
    path: Path = Path("PLAN.yaml")
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)
    """`tree`, `roles.actor`, ... -> where it stands in the file."""

    def places(self, problem: Problem) -> Mapping[str, frozenset[int]]:
        """Stage -> its devices."""
        return {name: frozenset(device for role in problem.stage(name).members for rank in self.roles.get(role, (tuple(devices),))
                                for device in rank) if devices else frozenset()
                for name, devices in layout(self.plan.tree).items()}

    def units(self, problem: Problem) -> Mapping[str, int]:
        """Devices of a rank or replica of the stages that have a choice."""
        return {**self.plan.units, **{stage.name: len(self.roles[role][0]) for stage in problem.stages if stage.spreads
                                      for role in stage.members if role in self.roles}}

    def at(self, key: str) -> str:
        """`plan.yaml:4: `, for the beginning of a sentence."""
        line = self.lines.get(key)
        return f"{self.path}:{line}: " if line else f"{self.path}: "


# ---- writing ----


def save(file: PlanFile, path: Path) -> None:
    """Write a plan so that `load` reads it."""
    path.write_text(to_yaml(file), encoding="utf-8")


def to_yaml(file: PlanFile) -> str:
    """The text of a plan file."""
    plan, prediction = file.plan, file.plan.prediction
    lines = [f"tree: {text(plan.tree)}   # | side by side, `,` in turn: role and devices", f"devices: {file.devices}"]
    lines += ["roles:"] * bool(file.roles) + [f"  {role}: {_ranks(ranks)}" for role, ranks in file.roles.items()]
    if plan.chunk:
        lines.append(f"chunk: {{{', '.join(f'{stage}: {samples}' for stage, samples in plan.chunk.items())}}}")
    lines.append(f"staleness: {plan.staleness}")
    rest = {"profile": file.profile, "hardware": file.hardware, "prediction": prediction and _predicted(prediction)}
    said = {key: value for key, value in rest.items() if value}
    dumped = yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=120) if said else ""
    return _title(plan) + "\n".join(lines) + "\n" + dumped


def _ranks(ranks: Ranks) -> str:
    """`0-3` where each rank has one device, `0-7 by 2` where each has the next two, else `[0-1, 4-5]`."""
    devices = [device for rank in ranks for device in rank]
    if all(len(rank) == 1 for rank in ranks):
        return ranges(devices)
    if len({len(rank) for rank in ranks}) == 1 and len(ranks) > 1:
        return f"{ranges(devices)} by {len(ranks[0])}"
    return f"[{', '.join(ranges(rank) if ',' not in ranges(rank) else str(list(rank)) for rank in ranks)}]"


def _title(plan: Plan) -> str:
    cost = f": {plan.prediction.step_s:.4g} s an iteration, predicted ({plan.prediction.source})" if plan.prediction else ""
    return f"# {plan.mode}{cost}. Edit it, and pass it back as placement=FILE\n"


def _predicted(prediction: Prediction) -> dict[str, Any]:
    busy = {group: {state: _short(seconds) for state, seconds in states.items()} for group, states in prediction.busy.items()}
    found = {"step_s": _short(prediction.step_s), "bound_by": prediction.bound_by, "source": prediction.source, "busy": busy,
             "memory_gb": {group: _short(size / 1e9) for group, size in prediction.memory.items()},
             "extrapolated": list(prediction.extrapolated)}
    return {key: value for key, value in found.items() if value}


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def ranges(devices: Sequence[int]) -> str:
    """`0-3,5` for 0, 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for device in devices:
        if runs and device == runs[-1][-1] + 1:
            runs[-1].append(device)
        else:
            runs.append([device])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


# ---- reading ----


def load(path: Path) -> PlanFile:
    """The plan that a file holds, as it is written: `validate` says whether it can be executed. Raises UsageError, with the
    line, for a file that cannot be read or is no plan."""
    entries = dict(entries_of(root_of(path), path, KEYS))
    lines = {key: key_node.start_mark.line + 1 for key, (key_node, _) in entries.items()}
    reader = Reader(path, {key: node for key, (_, node) in entries.items()}, lines)
    tree = reader.tree()
    plan = Plan(tree, reader.chunk(), reader.number("staleness", 0), reader.prediction())
    return PlanFile(plan, reader.number("devices", width(tree)), reader.string("profile"), reader.string("hardware"),
                    reader.roles(), path, lines)


def is_plan(path: Path) -> bool:
    """Whether a YAML file is a plan, rather than a placement or something else: it has a `tree`. False for what cannot be
    read."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    return isinstance(root, yaml.MappingNode) and any(key.value == "tree" for key, value in root.value
                                                      if isinstance(value, yaml.ScalarNode))


# ---- can it be executed? ----


def validate(file: PlanFile, problem: Problem) -> Plan:
    """The plan, if it can be executed; roles that take no devices, and are not in it, are put beside what they work on.

    Raises UsageError for what says nothing, or contradicts itself, CapacityError for what asks more than there is: one sentence
    with the line.
    """
    units = file.units(problem)
    problem = problem.spread(units)
    _check_stages(file, problem)
    _check_counts(file, problem)
    _check_places(file, problem)
    _check_chunk(file, problem)
    if file.plan.staleness > problem.staleness:
        raise UsageError(f"{file.at('staleness')}the plan runs ahead by {file.plan.staleness} versions, but "
                         f"rollout.staleness={problem.staleness}: lower it here, or raise rollout.staleness")
    missing = fits(problem, file.plan.tree)
    if missing:
        raise CapacityError(f"{file.at('tree')}{missing}: give it more devices, or make room on them")
    return replace(file.plan, tree=_completed(file.plan.tree, problem), units=units)


def _completed(tree: Tree, problem: Problem) -> Tree:
    for stage in problem.stages:
        names = [leaf.stage for leaf in leaves(tree)]
        if stage.name not in names:
            beside = max((names.index(name) for name in stage.after), default=0)
            tree = _with(tree, names[beside], stage.name)
    return tree


def _with(tree: Tree, beside: str, name: str) -> Tree:
    if isinstance(tree, Leaf):
        return SideBySide(tree, Leaf(name, 0)) if tree.stage == beside else tree
    return replace(tree, first=_with(tree.first, beside, name), second=_with(tree.second, beside, name))


def _check_stages(file: PlanFile, problem: Problem) -> None:
    names = [stage.name for stage in problem.stages]
    seen: set[str] = set()
    for leaf in leaves(file.plan.tree):
        if leaf.stage not in names:
            raise UsageError(f"{file.at('tree')}there is no role '{leaf.stage}'{did_you_mean(leaf.stage, names)}; the roles are "
                             f"{', '.join(names)}")
        if leaf.stage in seen:
            raise UsageError(f"{file.at('tree')}role '{leaf.stage}' is there twice: keep one of them")
        late = next((name for name in problem.stage(leaf.stage).after if name not in seen), None)
        if late is not None and late in [other.stage for other in leaves(file.plan.tree)]:
            raise UsageError(f"{file.at('tree')}'{leaf.stage}' works on what '{late}' makes: write it behind '{late}'")
        seen.add(leaf.stage)
    missing = next((stage for stage in problem.stages if stage.name not in seen and stage.needs_device), None)
    if missing is not None:
        example = text(Leaf(missing.name, devices_of_unit(missing)))
        raise UsageError(f"{file.at('tree')}role '{missing.name}' has no place: add it, as in "
                         f"'({text(file.plan.tree)}), {example}'")


def _check_counts(file: PlanFile, problem: Problem) -> None:
    for leaf in leaves(file.plan.tree):
        stage = problem.stage(leaf.stage)
        if leaf.devices > problem.devices:
            raise CapacityError(f"{file.at('tree')}'{leaf.stage}' is given {leaf.devices} devices, but {_there(problem)}")
        if not feasible(problem, stage, problem.devices)[leaf.devices]:
            number = f"{leaf.devices} device{'s' * (leaf.devices != 1)}"
            raise CapacityError(f"{file.at('tree')}'{leaf.stage}' cannot run on {number}: {_why(problem, stage)}")
    needed = width(file.plan.tree)
    if needed > problem.devices:
        raise CapacityError(f"{file.at('tree')}the plan needs {needed} devices side by side, but {_there(problem)}: give its "
                            "roles fewer, or let some take turns, with a comma")


def _there(problem: Problem) -> str:
    return "there is 1" if problem.devices == 1 else f"there are {problem.devices}"


def _why(problem: Problem, stage: Stage) -> str:
    """What numbers of devices a stage can have, in words."""
    unit = devices_of_unit(stage)
    if not unit:
        return "it computes beside others and takes none, so write its name alone"
    counts = [count for count, possible in enumerate(feasible(problem, stage, problem.devices)) if possible]
    if not counts:
        return f"one rank needs {unit}, and {_there(problem)}"
    if len(counts) > 4:
        rule = f"multiples of {unit}" if unit > 1 else "any number"
        return f"it can have {rule} from {counts[0]} to {counts[-1]}"
    return f"it can have {' or '.join(map(str, counts))}"


def _check_places(file: PlanFile, problem: Problem) -> None:
    counts = {leaf.stage: leaf.devices for leaf in leaves(file.plan.tree)}
    stages = {role: stage for stage in problem.stages for role in stage.members}
    for role, ranks in file.roles.items():
        where = file.at(f"roles.{role}")
        if role not in stages:
            raise UsageError(f"{where}there is no role '{role}'{did_you_mean(role, stages)}; the roles are {', '.join(stages)}")
        _check_ranks(f"{where}role '{role}'", ranks, problem, stages[role])
    for stage in problem.stages:
        _check_count(file, stage, counts.get(stage.name, 0))
    _check_overlaps(file, file.plan.tree, file.places(problem))


def _check_count(file: PlanFile, stage: Stage, count: int) -> None:
    """Whether a stage has as many devices as in the tree: those of a circle share them, or have some each."""
    named = [role for role in stage.members if role in file.roles]
    if not stage.needs_device or not named:
        return
    devices = {device for role in named for rank in file.roles[role] for device in rank}
    if len(devices) != count and len(named) == len(stage.members):
        who = f"role '{named[0]}' has" if len(named) == 1 else f"roles {' and '.join(map(repr, named))} together have"
        raise UsageError(f"{file.at(f'roles.{named[0]}')}{who} {len(devices)} devices here, but {count} in the tree: change one "
                         "of them, or leave out 'roles'")


def _check_ranks(where: str, ranks: Ranks, problem: Problem, stage: Stage) -> None:
    devices = [device for rank in ranks for device in rank]
    if max(devices) >= problem.devices:
        raise CapacityError(f"{where} is placed on device {max(devices)}, but {_there(problem)}, numbered from 0")
    if not stage.needs_device:
        return
    if len(set(devices)) < len(devices):
        raise UsageError(f"{where} names a device twice")
    unit = devices_of_unit(stage)
    if any(len(rank) != unit for rank in ranks):
        raise UsageError(f"{where} has ranks of {len(ranks[0])} devices here, but was measured with {unit}: write "
                         f"'0-7 by {unit}', or a list, a rank an entry")


def _check_overlaps(file: PlanFile, tree: Tree, places: Mapping[str, frozenset[int]]) -> None:
    """Side by side is on different devices, in turn on the same ones."""
    if isinstance(tree, Leaf):
        return
    if isinstance(tree, InTurn):
        _check_shares(file, tree, places)
    for first, second in product(leaves(tree.first), leaves(tree.second)):
        both = sorted(places[first.stage] & places[second.stage])
        if both and not isinstance(tree, InTurn):
            where = file.at(f"roles.{second.stage}" if second.stage in file.roles else "tree")
            raise CapacityError(f"{where}device {both[0]} is given to '{first.stage}' and '{second.stage}' at the same time: "
                                "give them different ones, or let them take turns in the tree, with a comma")
    for part in (tree.first, tree.second):
        _check_overlaps(file, part, places)


def _check_shares(file: PlanFile, tree: InTurn, places: Mapping[str, frozenset[int]]) -> None:
    first, second = (frozenset[int]().union(*(places[leaf.stage] for leaf in leaves(part))) for part in (tree.first, tree.second))
    if not (first <= second or second <= first):
        names = f"'{text(tree.first)}' and '{text(tree.second)}'"
        raise UsageError(f"{file.at('roles')}{names} take turns in the tree, but each has devices that the other has not: place "
                         "the smaller one on devices of the larger one, or put them side by side, with a |")


def _check_chunk(file: PlanFile, problem: Problem) -> None:
    names = [leaf.stage for leaf in leaves(file.plan.tree)]
    for stage, chunk in file.plan.chunk.items():
        where = file.at(f"chunk.{stage}")
        if stage not in names:
            raise UsageError(f"{where}role '{stage}' is not in the tree{did_you_mean(stage, names)}")
        if chunk > problem.samples or chunk % problem.group:
            raise UsageError(f"{where}'{stage}' cannot take {chunk} samples at once: a batch has {problem.samples}, in groups of "
                             f"{problem.group} that stay together; write a multiple of {problem.group}")

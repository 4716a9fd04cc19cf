"""From a configuration and a profile to a placement: what is searched for, the search, and what the run is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Bounds, Placement, Ranks
from rlinf_cli.scheduling import plan_file
from rlinf_cli.scheduling.costs import devices_of_unit, feasible
from rlinf_cli.scheduling.fit import Node, problem_of
from rlinf_cli.scheduling.plan import Found, Plan
from rlinf_cli.scheduling.plan_file import PlanFile
from rlinf_cli.scheduling.problem import Decoding, Problem, Stage
from rlinf_cli.scheduling.profile import Profile, RoleProfile
from rlinf_cli.scheduling.search import search
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide, Tree
from rlinf_cli.workers.algorithm import trait
from rlinf_cli.workers.streaming import can_stream
from rlinf_cli.workflows.base import Role

AUTO = "auto"
"""The placement that a run finds for itself."""
TOP = 8
"""Plans that are simulated, unless somebody asks for more."""


def choose(problem: Problem, roles: Sequence[Role], kind: str = "", top: int = TOP) -> tuple[Placement, Found]:
    """The fastest execution of a workflow's roles, `found.best`, and where it runs them. Raises CapacityError naming what
    stands in the way where there is none."""
    found, problem = _searched(problem, top)
    chunk = {name: size for name, size in found.best.chunk.items() if _costs_chunks(problem.stage(name))}
    best = replace(found.best, chunk=chunk)
    return placement_of(best, problem, roles, kind), replace(found, best=best)


def _searched(problem: Problem, top: int) -> tuple[Found, Problem]:
    """The better of both ways to run cycles, in turn on the same devices or each member on its own, and its problem."""
    found, other = search(problem, top), problem.with_cycles_apart()
    if other is None:
        return found, problem
    try:
        apart = search(other, top)
    except CapacityError:
        return found, problem
    assert found.best.prediction is not None
    assert apart.best.prediction is not None
    return (apart, other) if apart.best.prediction.step_s < found.best.prediction.step_s else (found, problem)


def _costs_chunks(stage: Stage) -> bool:
    """Whether it is known what a chunk costs however small it is: else none is too small for the search, and the run itself finds
    out which is."""
    return isinstance(stage.cost, Decoding) or any(law.chunk_s for _, law in stage.cost.laws)


# ---- what is searched for ----


def problem_for(config: RunConfig, roles: Sequence[Role], devices: int, profile: Profile) -> Problem:
    """What a placement of these roles is searched with. Raises UsageError where the profile lacks a role."""
    rollout, env = config.rollout, config.env
    samples, group, longest = ((env.count, env.group, 0) if env.name else
                               (rollout.prompts * rollout.group_size, rollout.group_size, rollout.max_new_tokens))
    return problem_of(profile, nodes_of(config, roles, profile), devices=devices, samples=samples, group=group,
                      max_new_tokens=longest, staleness=rollout.staleness, seed=config.seed)


def noted(problem: Problem, note: str) -> Problem:
    """With one more thing that the reader must know, if it is any."""
    return replace(problem, notes=(note, *problem.notes)) if note else problem


def nodes_of(config: RunConfig, roles: Sequence[Role], profile: Profile) -> list[Node]:
    """The roles as stages, those together that were measured as one (`environment+rollout`). Who takes whose items is what flowed
    when they were measured; where that is not known, each takes those of the one before."""
    stages: dict[str, list[Role]] = {}
    for role in roles:
        stages.setdefault(_measured_as(role.name, profile), []).append(role)
    after = dict(_producers(stages, profile))
    generates = any(profile.roles[name].decoding for name in stages)
    streams = generates and can_stream(_traits(config), config)
    return [_node(config, name, members, after[name], profile.roles[name], streams) for name, members in stages.items()]


def _node(config: RunConfig, name: str, members: Sequence[Role], after: tuple[str, ...], measured: RoleProfile,
          streams: bool) -> Node:
    # a critic is trained as well, but what it gives goes on before, and generation does not wait for it
    trains = any(role.stateful and not role.scores for role in members)
    weights = "policy" if config.cluster.fused and (trains or measured.decoding) else ""
    return Node(name, after, tuple(role.name for role in members) if len(members) > 1 else (), measured.needs_device,
                1 if all(role.ranks == "one" for role in members) else 0, streams or not trains, trains, weights,
                tuple(ranks for ranks in range(1, config.env.count + 1) if config.env.count % (2 * ranks) == 0))


def _measured_as(role: str, profile: Profile) -> str:
    found = max((name for name in profile.roles if role in name.split("+")), key=lambda name: name.count("+"), default=None)
    if found is None:
        raise UsageError(f"the profile has no role '{role}' (it has {', '.join(profile.roles)}): it is of another workflow "
                         "or algorithm; measure this one with: rlinf profile")
    return found


def _producers(stages: Mapping[str, Sequence[Role]], profile: Profile) -> Iterator[tuple[str, tuple[str, ...]]]:
    of = {role.name: name for name, members in stages.items() for role in members} | {name: name for name in stages}
    flowed = [(of[one], of[other]) for one, other in profile.transfers if one in of and other in of and of[one] != of[other]]
    names = list(stages)
    for place, name in enumerate(names):
        makers = [producer for producer, consumer in flowed if consumer == name] if flowed else names[max(place - 1, 0):place]
        yield name, tuple(dict.fromkeys(makers))


@dataclass(frozen=True)
class _Traits:
    """Of the algorithm of a run that generates; to ask its configuration does not take torch, as building it would."""

    per_group: bool
    rounds: int
    supervised: bool = False


def _traits(config: RunConfig) -> _Traits:
    return _Traits(trait(config, "per_group"), trait(config, "rounds"))


# ---- from a plan to a placement ----


def placement_of(plan: Plan, problem: Problem, roles: Sequence[Role], kind: str = "",
                 ranks: Mapping[str, Ranks] | None = None) -> Placement:
    """Each role's ranks on the devices of its stage; a role that needs no device sits beside who makes what it works on.

    `ranks`: of roles that are placed by hand.
    """
    given, problem = ranks or {}, problem.spread(plan.units)
    placed = {role.name: given.get(role.name) or _seats(plan, problem, role) for role in roles}
    fixed = frozenset(role.name for role in roles if role.ranks != "all")
    return Placement(placed, kind, granularity=dict(_granularity(plan, problem, roles, placed)), fixed=fixed)


def _stage_of(problem: Problem, role: str) -> Stage:
    return next(stage for stage in problem.stages if role in stage.members)


def _seats(plan: Plan, problem: Problem, role: Role) -> Ranks:
    stage = _stage_of(problem, role.name)
    devices, unit = plan.devices.get(stage.name, range(0)), devices_of_unit(stage)
    if not devices:
        return tuple((device,) for device in _beside(plan, problem, stage)[: 1 if role.ranks == "one" else None])
    widths = dict(stage.widths).get(len(devices))
    if widths is not None:
        before = sum(widths[: stage.members.index(role.name)])
        devices = devices[before : before + widths[stage.members.index(role.name)]]
    count = 1 if role.ranks == "one" else len(devices) // unit
    return tuple(tuple(devices[first:first + unit]) for first in range(0, count * unit, unit))


def _beside(plan: Plan, problem: Problem, stage: Stage) -> Sequence[int]:
    """The devices of the nearest producer that has some; of the first consumer, where none has."""
    producers = _producing(problem, stage)
    return plan.devices[producers[-1].name] if producers else next(devices for devices in plan.devices.values() if devices)


def _producing(problem: Problem, stage: Stage) -> list[Stage]:
    """Those whose items it gets that need devices, be it through others that need none."""
    found = []
    for name in stage.after:
        producer = problem.stage(name)
        found += [producer] if producer.needs_device else _producing(problem, producer)
    return found


def _granularity(plan: Plan, problem: Problem, roles: Sequence[Role],
                 placed: Mapping[str, Ranks]) -> Iterator[tuple[str, Bounds]]:
    """In groups, for who works beside those that it takes from: around the plan's chunk, within which the run adapts it."""
    most = problem.samples // problem.group
    for role in roles:
        stage = _stage_of(problem, role.name)
        makers = {device for maker in _producing(problem, stage) for name in maker.members for rank in placed[name]
                  for device in rank}
        mine = {device for rank in placed[role.name] for device in rank}
        if role.chunked and stage.name in plan.chunk and stage.needs_device and not makers & mine:
            groups = max(1, plan.chunk[stage.name] // problem.group)
            yield role.name, (max(1, groups // 2), min(most, 2 * groups))


# ---- from a placement to a plan ----


def plan_of(placement: Placement, problem: Problem) -> Plan:
    """The plan that a placement amounts to, so that what it costs can be predicted. Devices that some ranks of a role share with
    another role, and others not, are taken to be shared by all; ranks that never get anything are left out."""
    units = {stage.name: len(placement[role][0]) for stage in problem.stages if stage.spreads
             for role in stage.members if role in placement}
    problem = problem.spread(units)
    places = {stage.name: frozenset(device for role in stage.members if role in placement for device in placement.devices(role))
              for stage in problem.stages}
    tree = _tree(problem, [(stage, places[stage.name] if stage.needs_device else frozenset()) for stage in problem.stages])
    chunk = {name: min(problem.samples, high * problem.group) for name, (_, high) in placement.granularity.items()}
    return Plan(tree, chunk, problem.staleness, units=units)


def _tree(problem: Problem, stages: Sequence[tuple[Stage, frozenset[int]]]) -> Tree:
    """Cut where what comes before has no device in common with what comes after; where there is no such place, the last one
    takes turns with all before it."""
    if len(stages) == 1:
        return _leaf(problem, *stages[0])
    for cut in range(1, len(stages)):
        before, after = (frozenset[int]().union(*(devices for _, devices in part)) for part in (stages[:cut], stages[cut:]))
        if not before & after:
            return SideBySide(_tree(problem, stages[:cut]), _tree(problem, stages[cut:]))
    return InTurn(_tree(problem, stages[:-1]), _tree(problem, stages[-1:]))


def _leaf(problem: Problem, stage: Stage, devices: frozenset[int]) -> Leaf:
    """On as many of the devices as it can use."""
    usable = np.flatnonzero(feasible(problem, stage, len(devices)))
    return Leaf(stage.name, int(usable[-1]) if len(usable) else len(devices))


# ---- plan files ----


def file_of(plan: Plan, placement: Placement, profile: str, problem: Problem) -> PlanFile:
    """What `rlinf plan --out` writes."""
    return PlanFile(plan, problem.devices, profile, problem.hardware, dict(placement.ranks))


def placement_from(path: Path, config: RunConfig, roles: Sequence[Role], devices: int, kind: str,
                   profile: Profile | None = None) -> Placement:
    """The placement of a plan file, checked as `plan_file.validate` does. Without its profile, for the numbers of devices only,
    not for memory."""
    file = plan_file.load(path)
    problem = problem_for(config, roles, devices, profile or _unmeasured(roles, file))
    return placement_of(plan_file.validate(file, problem), problem, roles, kind, file.roles)


def _unmeasured(roles: Sequence[Role], file: PlanFile) -> Profile:
    """A profile in which nothing costs anything: roles have as many devices a rank as the file gives them."""
    placed = {stage for stage, devices in file.plan.devices.items() if devices}
    return Profile("", {role.name: RoleProfile(role.name, devices_per_rank=len(file.roles.get(role.name, ((0,),))[0]),
                                               needs_device=role.name in placed or role.stateful) for role in roles})

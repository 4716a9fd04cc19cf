"""Which placement a run begins with: the one that is named, or what `placement=auto` makes of a profile that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import CapacityError, UsageError, did_you_mean
from rlinf_cli.flow.placement import Placement, RoleSpec, describe, fuse, spatial, temporal
from rlinf_cli.flow.placement_text import is_file, is_line, load_placement, parse_placement
from rlinf_cli.runs.conditions import hardware, settings, versions
from rlinf_cli.runs.planning import AUTO, choose, placement_from, plan_of, problem_for
from rlinf_cli.runs.profiles import fitting, profile_of_plan
from rlinf_cli.scheduling import plan_file, profile_file
from rlinf_cli.scheduling.profile import Profile
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.state.adaptation import MEASURED
from rlinf_cli.workflows.base import Role

MODES = {AUTO: temporal, "temporal": temporal, "spatial": spatial}
"""Placements by a rule."""
UNMEASURED = frozenset({"examples", "environment", "agent"})
"""Roles of runs that are not measured as they train."""


@dataclass(frozen=True)
class Beginning:
    """The placement that a run begins with."""

    placement: Placement
    adapts: bool = False
    """Whether the run may change it."""
    profile: Profile | None = None
    """What it was chosen by."""
    why: str = ""
    """In words, where the run chooses."""
    notes: tuple[str, ...] = ()
    """What the user should know of it."""

    @property
    def line(self) -> str:
        """Where roles run, and why."""
        return describe(self.placement) + (f"   ({self.why})" if self.why else "")


def begin(config: RunConfig, roles: Sequence[Role], devices: int, kind: str, own: Path | None = None) -> Beginning:
    """On so many devices. `own`: a profile that the run has measured itself before. Raises UsageError or CapacityError where
    the placement that the configuration names cannot be."""
    if _is_open(config, roles, devices):
        return _chosen(config, roles, devices, kind, own)
    if not _is_plan(config):
        return Beginning(place(config, roles, devices, kind))
    profile, note = profile_of_plan(plan_file.load(Path(config.placement)), config, roles, devices)
    return Beginning(place(config, roles, devices, kind, profile), notes=(note,) if note else ())


def place(config: RunConfig, roles: Sequence[Role], devices: int, kind: str, profile: Profile | None = None) -> Placement:
    """The placement that the configuration asks for; `auto` is temporal. `profile`: what the memory of a plan is checked by."""
    specs = [RoleSpec(role.name, role.ranks, role.stateful or role.scores, role.chunked) for role in roles]
    placement = (placement_from(Path(config.placement), config, roles, devices, kind, profile) if _is_plan(config)
                 else _named(config, specs, devices, kind))
    return fuse(placement) if config.cluster.fused else placement


def _is_plan(config: RunConfig) -> bool:
    return is_file(config.placement) and plan_file.is_plan(Path(config.placement))


def _named(config: RunConfig, roles: Sequence[RoleSpec], devices: int, kind: str) -> Placement:
    text = config.placement
    if text in MODES:
        return MODES[text](roles, devices, kind)
    if is_file(text):
        return load_placement(Path(text), roles, devices, kind)
    if is_line(text):
        return parse_placement(text, roles, devices, kind)
    raise UsageError(f"placement={text} (from {config.origin('placement')}) is no mode, file or assignment"
                     f"{did_you_mean(text, MODES)}: write auto, temporal, spatial, FILE.yaml, or which roles run where, as in "
                     "rollout+reward:0-1,actor:1")


# ---- auto ----


def _is_open(config: RunConfig, roles: Sequence[Role], devices: int) -> bool:
    """Whether the run has something to choose. The same numbers to the last bit need the same number of the actor's ranks."""
    names = {role.name for role in roles}
    several = sum(role.ranks == "all" for role in roles) > 1
    free = not (names & UNMEASURED or config.cluster.fused or config.deterministic)
    return config.placement == AUTO and free and several and devices > 1


def _chosen(config: RunConfig, roles: Sequence[Role], devices: int, kind: str, own: Path | None) -> Beginning:
    """The best by a profile that fits; without one temporal, to be measured."""
    in_turn = place(config, roles, devices, kind)
    measures = f"the first {MEASURED + 1} steps are measured as they are trained"
    path, changed = _profile_path(config, devices, kind, own)
    if path is None:
        since = f"no profile fits, {', '.join(changed)}" if changed else "no profile yet"
        return Beginning(in_turn, True, why=f"{since}: {measures}")
    profile = profile_file.load(path)
    try:
        problem = problem_for(config, roles, devices, profile)
        placement, found = choose(problem, roles, kind)
    except (UsageError, CapacityError) as error:
        return Beginning(in_turn, True, why=f"nothing can be chosen by {path}, {error}; {measures}")
    assert found.best.prediction is not None
    whose = "this run's own profile" if path == own else f"the profile of {profile.made.replace('T', ' ')[:16]}"
    others = "" if placement.mode == "temporal" else f", temporal {predict(problem, plan_of(in_turn, problem)).step_s:.3g}"
    return Beginning(placement, True, profile, f"by {whose}: predicted {found.best.prediction.step_s:.3g} s a step{others}")


def _profile_path(config: RunConfig, devices: int, kind: str, own: Path | None) -> tuple[Path | None, list[str]]:
    """The profile to begin with; where there is none, what has changed since the nearest was measured."""
    found = None if own is None else profile_file.readable(own)
    if found is not None and not profile_file.differences(found, hardware(kind, devices), versions(), settings(config)):
        return own, []
    return fitting(config, kind, devices)

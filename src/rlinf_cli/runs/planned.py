"""What `rlinf plan` does: find the profile, search, and show what was asked for beside what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlinf_cli.config.load import check
from rlinf_cli.config.schema import DEFAULT, RunConfig
from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.flow.devices import parse_devices
from rlinf_cli.flow.placement import Placement
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.runs.files import explained
from rlinf_cli.runs.planning import choose, file_of, plan_of, problem_for
from rlinf_cli.runs.preflight import AUTO, SCORING, place
from rlinf_cli.scheduling import plan_file, profile_file
from rlinf_cli.scheduling.analytic import analytic_profile, assumed_lengths
from rlinf_cli.scheduling.costs import fits
from rlinf_cli.scheduling.explain import Row, document, rows
from rlinf_cli.scheduling.plan import Found, Plan, Rejected
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.profile import Profile
from rlinf_cli.scheduling.roofline import Use, Work
from rlinf_cli.scheduling.shapes import SHAPES
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.workflows.base import Role

ANALYTIC = "analytic:"
"""How a profile begins that is computed for a machine: `analytic:h100`."""


@dataclass(frozen=True)
class Planned:
    """What a search for a run came to."""

    problem: Problem
    found: Found
    placement: Placement
    profile: str
    given: Rejected | None = None
    """The placement that the configuration names."""

    def rows(self) -> list[Row]:
        """The chosen plan, then the others, with the placement that was asked for."""
        return rows(self._all, self.problem, self._given)

    def document(self) -> dict[str, Any]:
        """For JSON: all plans, and the placement of the best."""
        placed = {role: [list(rank) for rank in ranks] for role, ranks in self.placement.items()}
        return document(self._all, self.problem, self.profile, self._given) | {"placement": placed}

    def save(self, path: Path) -> None:
        """Write the plan file. Raises UsageError where it cannot be written."""
        with explained(f"cannot write {path}", UsageError):
            plan_file.save(file_of(self.found.best, self.placement, self.profile, self.problem), path)

    @property
    def _given(self) -> Plan | None:
        return None if self.given is None else self.given.plan

    @property
    def _all(self) -> Found:
        return self.found if self.given is None else replace(self.found, others=[*self.found.others, self.given])


def plan_run(config: RunConfig, plugins: Plugins, source: str | None, devices: int, top: int,
             shape: str = "") -> Planned:
    """Search for the fastest plan of the run that a configuration describes; nothing is started.

    `source`: profile to plan with, as `read_profile` takes it · `devices`: how many; 0: as `cluster.devices` says ·
    `shape`: name of the model, if it is known by its shape only. Raises CapacityError where no placement is possible, UsageError
    without a profile.
    """
    check(config)
    roles = plugins.get("workflow", config.workflow).load()().roles(config)
    count = devices or devices_of(config)
    profile, name = read_profile(config, roles, source, count, shape or config.model.name)
    problem = problem_for(config, roles, count, profile)
    placement, found = choose(problem, roles, top=top)
    return Planned(problem, found, placement, name, _given(config, roles, problem))


def devices_of(config: RunConfig) -> int:
    """As many as `cluster.devices` says, whether they are there or not."""
    kind, colon, count = config.cluster.devices.partition(":")
    return int(count) if colon else parse_devices(kind).count


def _given(config: RunConfig, roles: Sequence[Role], problem: Problem) -> Rejected | None:
    """The placement of the configuration, where somebody gave one."""
    if config.origin("placement") == DEFAULT or config.placement == AUTO:
        return None
    plan = plan_of(place(config, roles, problem.devices, ""), problem)
    missing = fits(problem, plan.tree)
    return Rejected(plan if missing else replace(plan, prediction=predict(problem, plan)), missing)


# ---- profiles ----


def read_profile(config: RunConfig, roles: Sequence[Role], source: str | None, devices: int,
                 model: str) -> tuple[Profile, str]:
    """A profile, and what to call it. `source`: a file, `analytic:h100`, or None for the newest stored one that fits this machine
    and configuration. Raises UsageError, with what to do, where there is none."""
    if source is None:
        return _stored(config)
    if source.startswith(ANALYTIC):
        return _analytic(config, roles, source.removeprefix(ANALYTIC), devices, model), source
    profile = profile_file.load(Path(source))
    if profile.workflow != config.workflow:
        raise UsageError(f"profile {source} is of workflow '{profile.workflow}', and this run has workflow '{config.workflow}': "
                         "measure it with: rlinf profile")
    return profile, source


def _stored(config: RunConfig) -> tuple[Profile, str]:
    from rlinf_cli.runs.measuring import hardware, settings, versions  # imports Ray, which a profile that is named does without

    request = parse_devices(config.cluster.devices)
    where = profile_file.directory()
    path, changed = profile_file.find(where, config.workflow, hardware(request.kind, request.count), versions(), settings(config))
    if path is not None:
        return profile_file.load(path), str(path)
    why = f"; since the nearest one was measured, this has changed: {', '.join(changed)}" if changed else ""
    raise UsageError(f"no profile in {where} fits{why}. Measure one with: rlinf profile, with the same configuration; or plan "
                     "without measuring, with --profile analytic:h100")


def _analytic(config: RunConfig, roles: Sequence[Role], hardware: str, devices: int, model: str) -> Profile:
    rollout = config.rollout
    lengths = assumed_lengths(rollout.prompts * rollout.group_size, rollout.max_new_tokens, config.seed)
    uses = {role.name: _use(role) for role in roles}
    profile = analytic_profile(hardware, shape_of(model), uses, devices,
                               Work(lengths, rollout.group_size, rollout.max_prompt_tokens))
    return replace(profile, workflow=config.workflow)


def _use(role: Role) -> Use | None:
    """What a role does with the model."""
    return "train" if role.stateful else "generate" if role.name == "rollout" else "infer" if role.name in SCORING else None


def shape_of(model: str) -> str:
    """`Qwen/Qwen2.5-7B-Instruct` -> `qwen2.5-7b`."""
    name = model.rpartition("/")[2].lower()
    found = max((shape for shape in SHAPES if name.startswith(shape)), key=len, default=None)
    if found is None:
        raise UsageError(f"there is no analytic profile of model.name={model}{did_you_mean(name, SHAPES)}: choose one of "
                         f"{', '.join(SHAPES)} with --model")
    return found

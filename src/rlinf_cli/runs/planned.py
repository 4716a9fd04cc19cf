"""What `rlinf plan` does: find the profile, search, and show what was asked for beside what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlinf_cli.config.kinds import DEFAULT
from rlinf_cli.config.load import check
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.placement import Placement
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.runs.files import explained
from rlinf_cli.runs.placing import place
from rlinf_cli.runs.planning import AUTO, choose, file_of, noted, plan_of, problem_for
from rlinf_cli.runs.profiles import devices_of, read_profile
from rlinf_cli.scheduling import plan_file
from rlinf_cli.scheduling.costs import fits
from rlinf_cli.scheduling.explain import Row, document, rows
from rlinf_cli.scheduling.plan import Found, Plan, Rejected
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.workflows.base import Role


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
    known = read_profile(config, roles, source, count, shape or config.model.name)
    problem = noted(problem_for(config, roles, count, known.profile), known.note)
    placement, found = choose(problem, roles, top=top)
    return Planned(problem, found, placement, known.name, _given(config, roles, problem))


def _given(config: RunConfig, roles: Sequence[Role], problem: Problem) -> Rejected | None:
    """The placement of the configuration, where somebody gave one."""
    if config.origin("placement") == DEFAULT or config.placement == AUTO:
        return None
    plan = plan_of(place(config, roles, problem.devices, ""), problem)
    missing = fits(problem, plan.tree)
    return Rejected(plan if missing else replace(plan, prediction=predict(problem, plan)), missing)

"""`placement=auto`: a run that measures its first steps as it trains them, or knows them from a profile, moves to the placement
that they speak for, and goes on to compare."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import CapacityError
from rlinf_cli.flow.placement import Placement, describe
from rlinf_cli.runs.forecast import Forecast
from rlinf_cli.runs.placing import Beginning
from rlinf_cli.runs.planning import choose, problem_for
from rlinf_cli.runs.profiling_steps import Observed
from rlinf_cli.runs.step import RunStep, StepReport
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.plan import Found
from rlinf_cli.scheduling.profile import MemoryPoint, Profile, RoleProfile
from rlinf_cli.state.adaptation import DRIFT, Adaptation, Planned, Relaunched, Search, Searched, Stay, StepDone
from rlinf_cli.workflows.base import Role

WINDOW = 12
"""The latest steps of a placement that a plan is made from."""

_STAYS = {"best": "nothing is predicted to be faster", "gain": "nothing is predicted to be more than 10 % faster",
          "cost": "too few steps are left to make up for moving"}


class Adapter:
    """Decides for one run. `devices`, `kind`: of the cluster · `move_s`: about how long it takes to launch the roles anew ·
    `say`: told what was decided · `path`: where what was measured is written."""

    def __init__(self, config: RunConfig, roles: Sequence[Role], beginning: Beginning, devices: int, kind: str, move_s: float,
                 say: Callable[[str], None], path: Path) -> None:
        self._config, self._roles, self._devices, self._kind = config, list(roles), devices, kind
        self._move_s, self._say, self._path = move_s, say, path
        self._problem_of = partial(problem_for, config, self._roles, devices)
        self._forecast = Forecast(self._problem_of)
        self._adaptation = Adaptation(measures=beginning.profile is None)
        self._steps: dict[str, deque[StepReport]] = defaultdict(lambda: deque(maxlen=WINDOW))
        """Where they ran -> the latest."""
        self._ranks: dict[str, dict[str, int]] = {}
        self._observed = Observed(config, self._roles)
        self._profile = beginning.profile
        self.placement = beginning.placement
        self.target: Placement | None = None
        """Where to move to, as soon as no step is under way."""
        self._target_s = 0.0
        if self._profile is not None:
            self._adaptation.handle(Planned(self._forecast.of(self._profile, self.placement)))

    def compare(self, report: StepReport) -> None:
        """Add what the step was predicted to take, and by how much it was off, to its metrics."""
        predicted = self._forecast.seconds
        if predicted is not None and report.time is not None:
            report.metrics["plan/predicted_s"] = predicted
            report.metrics["plan/error_frac"] = report.time.seconds / predicted - 1

    def step(self, report: StepReport, saved: bool) -> bool:
        """A step has been reported; whether the workflow is to be left, to move to `target`. `saved`: a checkpoint may be
        written after it."""
        if self.target is not None:
            return True
        if report.time is None:
            return False
        if self._adaptation.counts:
            self._keep(report)
        self._forecast.add(report.lengths, report.time.seconds)
        left = self._config.steps - report.number
        for instruction in self._adaptation.handle(StepDone(report.time.seconds, left, saved)):
            if isinstance(instruction, Search):
                return self._search(instruction.drift, report.number, left)
        return False

    def look(self, step: RunStep) -> None:
        """Who passes what to whom in a step whose calls have ended, and how much memory they need."""
        self._observed.look(ranks_of(self.placement), step)

    def moved(self, seconds: float) -> None:
        """The run is where `target` says."""
        assert self.target is not None
        assert self._profile is not None
        self.placement, self.target = self.target, None
        self._move_s = seconds
        self._forecast.of(self._profile, self.placement)
        self._adaptation.handle(Planned(self._target_s))

    def relaunched(self) -> None:
        """Roles run in new processes, for another reason."""
        self._adaptation.handle(Relaunched())

    def _keep(self, report: StepReport) -> None:
        where = describe(self.placement)
        self._ranks[where] = ranks_of(self.placement)
        self._steps[where].append(replace(report, samples=[], evaluated=[], videos={}))

    def _search(self, drift: float, number: int, left: int) -> bool:
        cause, profile = self._learned(drift)
        if not is_measured(profile):
            self._adaptation = Adaptation()  # some more steps will show it
            return False
        self._profile = profile
        profile_file.save(self._profile, self._path)
        began = time.perf_counter()
        try:
            target, found = choose(self._problem_of(self._profile), self._roles, self._kind)
        except CapacityError as error:
            current = self._forecast.of(self._profile, self.placement)
            self._adaptation.handle(Searched(current, None, self._move_s, left))
            self._say(f"{cause}stays {describe(self.placement)}: {error}")
            return False
        took = f"{found.considered} plans in {(time.perf_counter() - began) * 1e3:.0f} ms"
        return self._decide(target, found, cause, took, number, left)

    def _decide(self, target: Placement, found: Found, cause: str, took: str, number: int, left: int) -> bool:
        assert self._profile is not None
        assert found.best.prediction is not None
        best = found.best.prediction.step_s
        current = self._forecast.of(self._profile, self.placement)
        is_same = dict(target.ranks) == dict(self.placement.ranks)
        [answer] = self._adaptation.handle(Searched(current, None if is_same else best, self._move_s, left))
        if isinstance(answer, Stay):
            self._say(f"{cause}stays {describe(self.placement)}: {_STAYS[answer.why]} (predicted {current:.3g} s a step, best "
                      f"{min(best, current):.3g}; {took})")
            return False
        self.target, self._target_s = target, best
        self._say(f"{cause}changes after step {number}: {describe(target)} — predicted {best:.3g} s a step instead of "
                  f"{current:.3g} ({took}; rlinf plan --explain {self._path.parent / 'config.yaml'} --profile {self._path})")
        return True

    def _learned(self, drift: float) -> tuple[str, Profile]:
        """Why there is a search, for the beginning of a sentence, and what it is made from: where other lengths explain why
        steps take longer or less, what the roles cost is as it was."""
        if not drift:
            return "", self._measured()
        cause = f"steps take {abs(drift):.0%} {'longer' if drift > 0 else 'less'} than predicted"
        if self._profile is not None and self._explains(self._profile):
            return f"{cause}, as responses have other lengths: ", self._forecast.updated(self._profile)
        return f"{cause}: ", self._measured()

    def _explains(self, profile: Profile) -> bool:
        """Whether the latest steps took what a profile says of responses as long as theirs."""
        times = [(report.time.seconds, self._forecast.with_lengths(profile, self.placement, report.lengths))
                 for report in self._steps[describe(self.placement)] if report.time is not None and report.lengths]
        taken, predicted = sum(one for one, _ in times), sum(one for _, one in times)
        return abs(taken - predicted) <= DRIFT * predicted

    def _measured(self) -> Profile:
        """The latest steps here, and those of the placements before, which tell what roles cost on other numbers of ranks."""
        measured = self._observed.without_steps()
        for where, reports in self._steps.items():
            for report in reports:
                measured.add(report, self._ranks[where])
        profile = measured.profile(self._kind, self._devices)
        state = {role.name for role in self._roles if role.stateful and self._kind == "cuda"}
        roles = {name: with_least_memory(role) if name in state else role for name, role in profile.roles.items()}
        return self._forecast.updated(replace(profile, roles=roles))


def is_measured(profile: Profile) -> bool:
    """Whether it is known what each role that needs a device costs."""
    joined = {role for name in profile.roles if "+" in name for role in name.split("+")}
    return all(name in joined or not role.needs_device or bool(role.batches or role.decoding)
               for name, role in profile.roles.items())


def ranks_of(placement: Placement) -> dict[str, int]:
    return {role: len(seats) for role, seats in placement.items()}


def with_least_memory(role: RoleProfile) -> RoleProfile:
    """Of a role that was seen on one number of ranks only: as if they shared all that they need, so that it is moved to fewer
    devices only where that has room in any case."""
    if len(role.memory) != 1 or role.memory[0].ranks == 1:
        return role
    [seen] = role.memory
    return replace(role, memory=(MemoryPoint(1, seen.loaded * seen.ranks, seen.left), seen))

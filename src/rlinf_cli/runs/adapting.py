"""`placement=auto`: a run that measures its first steps as it trains them, and moves to the placement that they speak for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import CapacityError
from rlinf_cli.flow.placement import Placement, describe
from rlinf_cli.runs.measuring import StepMeasurements, hardware
from rlinf_cli.runs.planning import choose, plan_of, problem_for
from rlinf_cli.runs.step import StepReport
from rlinf_cli.scheduling import profile_file
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.state.adaptation import MEASURED, Adaptation, Planned, Search, Searched, Stay, StepDone
from rlinf_cli.workflows.base import Role

WINDOW = 12
"""The latest steps that a plan is made from."""

_STAYS = {"best": "nothing is predicted to be faster", "gain": "nothing is predicted to be more than 10 % faster",
          "cost": "too few steps are left to make up for moving"}


class Adapter:
    """Decides for one run. `placement`: the one in force · `move_s`: about how long it takes to launch the roles anew ·
    `say`: told what was decided · `profile`: where what was measured is written."""

    def __init__(self, config: RunConfig, roles: Sequence[Role], placement: Placement, devices: int, kind: str, move_s: float,
                 say: Callable[[str], None], profile: Path) -> None:
        self._config, self._roles, self._devices, self._kind = config, list(roles), devices, kind
        self._move_s, self._say, self._path = move_s, say, profile
        self._adaptation = Adaptation()
        self._reports: list[tuple[StepReport, dict[str, int]]] = []
        self._predicted: float | None = None
        self.placement = placement
        self.target: Placement | None = None
        """Where to move to, as soon as no step is under way."""
        self._target_s = 0.0
        say(f"there is no profile yet: the first {MEASURED + 1} steps are measured as they are trained")

    def compare(self, report: StepReport) -> None:
        """Add what the step was predicted to take, and by how much it was off, to its metrics."""
        if self._predicted is not None and report.time is not None:
            report.metrics["plan/predicted_s"] = self._predicted
            report.metrics["plan/error_frac"] = report.time.seconds / self._predicted - 1

    def step(self, report: StepReport, saved: bool) -> bool:
        """A step has been reported; whether the workflow is to be left, to move to `target`."""
        if report.time is None or self.target is not None:
            return False
        ranks = {role: len(seats) for role, seats in self.placement.items()}
        self._reports = [*self._reports[-WINDOW + 1 :], (report, ranks)]
        left = self._config.steps - report.number
        for instruction in self._adaptation.handle(StepDone(report.time.seconds, left, saved)):
            if isinstance(instruction, Search):
                return self._search(instruction.why, report.number, left)
        return False

    def moved(self, seconds: float) -> None:
        """The run is where `target` says."""
        assert self.target is not None
        self.placement, self.target = self.target, None
        self._move_s, self._predicted = seconds, self._target_s
        self._reports.clear()
        self._adaptation.handle(Planned(self._target_s))

    def _search(self, why: str, number: int, left: int) -> bool:
        measured = StepMeasurements(self._config, self._roles)
        for report, ranks in self._reports[1:] or self._reports:  # in the first one everything is new
            measured.add(report, ranks)
        profile = measured.profile(hardware(self._kind, self._devices))
        profile_file.save(profile, self._path)
        problem = problem_for(self._config, self._roles, self._devices, profile)
        began = time.perf_counter()
        try:
            target, found = choose(problem, self._roles, self._kind)
        except CapacityError:
            return False
        took = f"{found.considered} plans in {(time.perf_counter() - began) * 1e3:.0f} ms"
        assert found.best.prediction is not None
        best = found.best.prediction.step_s
        current = self._predicted = predict(problem, plan_of(self.placement, problem)).step_s
        is_same = dict(target.ranks) == dict(self.placement.ranks)
        [answer] = self._adaptation.handle(Searched(current, None if is_same else best, self._move_s, left))
        cause = f"{why}: " if why else ""
        if isinstance(answer, Stay):
            self._say(f"{cause}stays {describe(self.placement)}: {_STAYS[answer.why]} (predicted {current:.3g} s a step, best "
                      f"{best:.3g}; {took})")
            return False
        self.target, self._target_s = target, best
        self._say(f"{cause}changes after step {number}: {describe(target)} — predicted {best:.3g} s a step instead of "
                  f"{current:.3g} ({took})")
        return True

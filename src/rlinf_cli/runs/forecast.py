"""What the steps of a run are predicted to take, brought up to date with the lengths of the responses that have come."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from rlinf_cli.flow.placement import Placement
from rlinf_cli.runs.planning import plan_of
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.profile import Profile
from rlinf_cli.scheduling.simulate import predict

KNOWN = 32
"""The latest steps whose lengths are those to come: a heavy tail needs many of them, a policy that changes few."""
SHARE = 0.01
"""Of the time of the steps, that predicting them may take."""


class Forecast:
    """`problem_of`: from a profile to what a placement is searched with."""

    def __init__(self, problem_of: Callable[[Profile], Problem]) -> None:
        self._problem_of = problem_of
        self._lengths: deque[Sequence[int]] = deque(maxlen=KNOWN)
        self._by: tuple[Profile, Placement] | None = None
        self._spent = self._trained = 0.0
        self.seconds: float | None = None
        """Of a step; None where nothing is known yet."""

    def of(self, profile: Profile, placement: Placement) -> float:
        """From now on the steps are those of this placement, by this profile; seconds of one."""
        self._by = profile, placement
        self._lengths = self._lengths or deque([profile.lengths], KNOWN)
        return self._predict(profile, placement)

    def add(self, lengths: Sequence[int], seconds: float) -> None:
        """A step has taken so long, and its responses had these lengths."""
        self._trained += seconds
        if lengths:
            self._lengths.append(lengths)
        if self._by is not None and self._spent <= SHARE * self._trained:
            self._predict(*self._by)

    def with_lengths(self, profile: Profile, placement: Placement, lengths: Sequence[int]) -> float:
        """Seconds of a step whose responses have just these lengths."""
        problem = replace(self._problem_of(replace(profile, lengths=tuple(lengths))), pool=None)
        return predict(problem, plan_of(placement, problem)).step_s

    def updated(self, profile: Profile) -> Profile:
        """With the lengths that are known now."""
        return replace(profile, lengths=tuple(itertools.chain.from_iterable(self._lengths)))

    def _predict(self, profile: Profile, placement: Placement) -> float:
        began = time.perf_counter()
        problem = self._problem_of(self.updated(profile))
        self.seconds = predict(problem, plan_of(placement, problem)).step_s
        self._spent += time.perf_counter() - began
        return self.seconds

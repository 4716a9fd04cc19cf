"""When a run looks for a better placement, and whether it moves to it: a pure state machine, events in, instructions out.

A run without a plan *measures* some steps as it trains them (the first one, in which everything is new, does not count), then
asks for a search. It *moves* when the plan that was found is predicted to save more than `GAIN` of a step, and when what the
steps that are left save outweighs what it costs to move. A plan that is in force is *watched*: every step's time is compared
with what the plan was made for, and when a window, and `MOST` of its steps, have been off by more than `DRIFT` in the same
direction, the run asks for a search again, at the next checkpoint. A search that leaves it where it is doubles the window.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

GAIN = 0.10
"""Share of a step's time that a better plan is to save."""
DRIFT = 0.15
"""Share of the predicted time by which steps may be off."""
WINDOW = 10
"""Steps of a drift, the first time."""
MOST = 0.8
"""Share of them that are off, as their mean is: with a heavy tail a few steps are long, and say little by themselves."""
MEASURED = 4
"""Steps from which a plan is made."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """Event: a step took so long; `left` are still to do. `saved`: a checkpoint may be written after it."""

    seconds: float
    left: int
    saved: bool = False


@dataclass(frozen=True, slots=True)
class Searched:
    """Event: steps are predicted to take so long with the placement that is in force, and with the best one, `None` when that
    is the same; `move_s`: seconds that it takes to move there."""

    current_s: float
    best_s: float | None
    move_s: float
    left: int


@dataclass(frozen=True, slots=True)
class Planned:
    """Event: a placement is in force for whose steps so long is predicted, in processes that are new."""

    predicted_s: float


@dataclass(frozen=True, slots=True)
class Relaunched:
    """Event: the next step begins in new processes."""


@dataclass(frozen=True, slots=True)
class Search:
    """Instruction: make a plan from what has been measured, and tell what was found. `drift`: share by which steps take longer
    than predicted; 0 the first time."""

    drift: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """Instruction: go over to the plan that was found."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Instruction: go on as before, for this reason."""

    why: Literal["best", "gain", "cost"]


Event = StepDone | Searched | Planned | Relaunched
Instruction = Search | Move | Stay


class Adaptation:
    """Of one run. `measures`: whether it has no plan yet."""

    def __init__(self, measures: bool = True) -> None:
        self._measuring = MEASURED if measures else 0
        self._predicted: float | None = None
        self._errors: deque[float] = deque(maxlen=WINDOW)
        self._skips = True

    @property
    def counts(self) -> bool:
        """Whether the next step is one that tells what steps take: not the first of new processes."""
        return not self._skips

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case StepDone():
                return self._step(event)
            case Searched():
                return [self._decide(event)]
            case Planned(predicted):
                self._watch(predicted, WINDOW)
                self._skips = True
            case Relaunched():
                self._skips = True
        return []

    def _step(self, event: StepDone) -> list[Instruction]:
        if self._skips:
            self._skips = False
            return []
        if self._measuring:
            self._measuring -= 1
            return [Search()] if not self._measuring and event.left else []
        if self._predicted is not None:
            self._errors.append(event.seconds / self._predicted - 1)
        return [Search(drift)] if event.saved and event.left and (drift := self.drift) else []

    @property
    def drift(self) -> float:
        """How far off the window is, 0 where it is not, or too few of its steps are."""
        count = self._errors.maxlen or 0
        if len(self._errors) < count:
            return 0.0
        error = fmean(self._errors)
        alike = sum(one * error > 0 and abs(one) > DRIFT for one in self._errors)
        return error if abs(error) > DRIFT and alike >= MOST * count else 0.0

    def _watch(self, predicted: float, window: int) -> None:
        self._predicted, self._errors = predicted, deque(maxlen=window)

    def _decide(self, event: Searched) -> Instruction:
        answer = self._answer(event)
        window = self._errors.maxlen or WINDOW
        self._watch(event.current_s, 2 * window if self._errors else window)
        return answer

    def _answer(self, event: Searched) -> Instruction:
        if event.best_s is None or event.best_s >= event.current_s:
            return Stay("best")
        saved = event.current_s - event.best_s
        if saved <= GAIN * event.current_s:
            return Stay("gain")
        return Move() if saved * event.left > event.move_s else Stay("cost")

"""When a run looks for a better placement, and whether it moves to it: a pure state machine, events in, instructions out.

A run without a plan *measures* some steps as it trains them (the first one, in which everything is new, does not count), then
asks for a search. It *moves* when the plan that was found is predicted to save more than `GAIN` of a step, and when what the
steps that are left save outweighs what it costs to move. A plan that is in force is *watched*: every step's time is compared
with the predicted one, and when it has been off by more than `DRIFT` for a whole window, in the same direction, the run asks
for a search again, at the next checkpoint.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal

GAIN = 0.10
"""Share of a step's time that a better plan is to save."""
DRIFT = 0.15
"""Share of the predicted time by which steps may be off."""
WINDOW = 10
"""Steps of a drift."""
MEASURED = 4
"""Steps from which a plan is made."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """Event: a step took so long; `left` are still to do. `saved`: it is one after which a checkpoint is written."""

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
    """Event: a placement is in force for whose steps so long is predicted."""

    predicted_s: float


@dataclass(frozen=True, slots=True)
class Search:
    """Instruction: make a plan from what has been measured, and tell what was found. `why`: empty the first time."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Instruction: go over to the plan that was found."""


@dataclass(frozen=True, slots=True)
class Stay:
    """Instruction: go on as before, for this reason."""

    why: Literal["best", "gain", "cost"]


Event = StepDone | Searched | Planned
Instruction = Search | Move | Stay


class Adaptation:
    """Of one run. `measures`: whether it has no plan yet."""

    def __init__(self, measures: bool = True) -> None:
        self._measuring = MEASURED + 1 if measures else 0
        self._predicted: float | None = None
        self._errors: deque[float] = deque(maxlen=WINDOW)
        self._skip = 0

    def handle(self, event: Event) -> list[Instruction]:
        match event:
            case StepDone():
                return self._step(event)
            case Searched():
                return [self._decide(event)]
            case Planned(predicted):
                self._predicted, self._skip = predicted, 1
                self._errors.clear()
                return []

    def _step(self, event: StepDone) -> list[Instruction]:
        if self._measuring:
            self._measuring -= 1
            return [Search()] if not self._measuring and event.left else []
        if self._skip:
            self._skip -= 1  # the first step of new processes
        elif self._predicted is not None:
            self._errors.append(event.seconds / self._predicted - 1)
        return [Search(f"steps take {abs(drift):.0%} {'longer' if drift > 0 else 'less'} than predicted")] if (
            event.saved and event.left and (drift := self.drift)) else []

    @property
    def drift(self) -> float:
        """How far off the whole window is, 0 where it is not, or not in one direction."""
        if len(self._errors) < WINDOW:
            return 0.0
        least = min(self._errors, key=abs)
        is_one_sided = min(self._errors) > 0 or max(self._errors) < 0
        middle = median(self._errors)
        return middle if is_one_sided and abs(least) > DRIFT else 0.0

    def _decide(self, event: Searched) -> Instruction:
        self._predicted = event.current_s
        self._errors.clear()
        if event.best_s is None or event.best_s >= event.current_s:
            return Stay("best")
        saved = event.current_s - event.best_s
        if saved <= GAIN * event.current_s:
            return Stay("gain")
        return Move() if saved * event.left > event.move_s else Stay("cost")

"""How far steps may run ahead of training, as a pure state machine: events in, an answer out.

Step k, counted from 0, trains version k of the policy into version k + 1. It may start as soon as all of step k - S - 1 has
ended, since version k - S has then been published: whatever its samples are made of is at most S versions old when they are
trained. At most S + 1 steps are open at any time, and each trains all of its own prompts, slow ones included. Admission
depends on the steps that are open alone, so a run that goes on at step 50 admits no more than one that begins.

A barrier after a step, such as an evaluation, lets nothing of the next step start before it has been lifted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Started:
    """The first of a step's calls may now be issued."""

    step: int


@dataclass(frozen=True, slots=True)
class Ended:
    """All of a step has ended: its version is published."""

    step: int


@dataclass(frozen=True, slots=True)
class Hold:
    """There is a barrier after this step; told before the next one starts."""

    step: int


@dataclass(frozen=True, slots=True)
class Lifted:
    """What the barrier after this step was for is done."""

    step: int


Event = Started | Ended | Hold | Lifted


class StalenessGate:
    """Answers whether the next step may start. Steps start in order, and end in order.

    `staleness`: S · `first`: the first step to come, those before it are trained already.
    """

    def __init__(self, staleness: int, first: int = 0) -> None:
        self._staleness = staleness
        self._next = self._oldest = first
        self._barriers: set[int] = set()

    @property
    def open(self) -> range:
        """Steps that have started and not ended."""
        return range(self._oldest, self._next)

    @property
    def next(self) -> int:
        """The step to start next."""
        return self._next

    def may_start(self) -> bool:
        """Whether the next step may start now."""
        return self._next - self._oldest <= self._staleness and not self._barriers

    def handle(self, event: Event) -> None:
        """Raises ValueError for an event that cannot be: the caller has lost count."""
        if isinstance(event, Started):
            _check(event, event.step == self._next and self.may_start())
            self._next += 1
        elif isinstance(event, Ended):
            _check(event, event.step == self._oldest < self._next)
            self._oldest += 1
        elif isinstance(event, Hold):
            _check(event, event.step == self._next - 1)
            self._barriers.add(event.step)
        else:
            _check(event, event.step in self._barriers and event.step < self._oldest)
            self._barriers.remove(event.step)


def _check(event: Event, is_possible: bool) -> None:
    if not is_possible:
        raise ValueError(f"{event} cannot be")

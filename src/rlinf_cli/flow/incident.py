"""What went wrong in a run, and what was done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Action = Literal["restarted", "retired", "recovered", "gave up", "stalled"]
"""`restarted`: a process was started again, its items went back · `retired`: the others go on without it · `recovered`: the
role goes on from its checkpoint · `gave up`: the run ends · `stalled`: all workers wrote down where they are."""


@dataclass(frozen=True, slots=True)
class Incident:
    """`time`: seconds since 1970 · `what`: what happened, a sentence as of a WorkerDiedError · `seconds`: until the role
    worked again."""

    time: float
    role: str
    rank: int
    node: str
    what: str
    action: Action
    detail: str = ""
    """What else is to be known, such as the weights that a new process got: `weights v17`."""
    seconds: float = 0.0

    def __str__(self) -> str:
        rest = f" with {self.detail}" if self.detail else ""
        took = f" in {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.what}: {self.action}{rest}{took}"

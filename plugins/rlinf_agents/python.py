"""`python`: programs that the policy writes, each in a process of its own with limits on time, memory and output.

No security boundary: a program can read what the user can read (docs/agents.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_agents.config import PythonConfig
from rlinf_cli.api import ProgramLimits, ProgramOutcome, ToolSpec, run_python

SPEC = ToolSpec("python", "Run a Python program and read what it prints.", {
    "type": "object", "properties": {"code": {"type": "string", "description": "a whole program, which prints its results"}},
    "required": ["code"]})


class PythonTool:
    """Contract: `rlinf_cli.api.Tool`."""

    def __init__(self, config: PythonConfig) -> None:
        self.config = config
        self._limits = ProgramLimits(config.run_s, config.memory_mb)

    def specs(self) -> Sequence[ToolSpec]:
        return [SPEC]

    async def open(self) -> None:
        """Nothing to load."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        outcome = await asyncio.to_thread(run_python, arguments["code"], "", self._limits)
        return shown(outcome, self.config.characters)

    async def close(self) -> None:
        """Nothing is open."""


def shown(outcome: ProgramOutcome, most: int) -> str:
    """What was printed, cut off at its end, and, of a program that failed, the last lines of its error and how it ended."""
    printed = outcome.stdout if len(outcome.stdout) <= most else f"{outcome.stdout[:most]} [cut]"
    if outcome.ok:
        return printed or "(nothing was printed)"
    return "\n".join(filter(None, [printed.rstrip(), outcome.stderr[-most:].strip(), f"({outcome.ended})"]))

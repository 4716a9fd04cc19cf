"""The agent and the tools that a configuration names."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.agent import Agent
from rlinf_cli.contracts.tool import Tool, ToolSpec
from rlinf_cli.errors import UsageError


def build_tools(config: RunConfig) -> list[Tool]:
    """Those of `tools.name`, not opened. Raises as their constructors, UsageError where a tool has a weight."""
    tools: list[Tool] = []
    for part in config.parts("tools"):
        assert part.extension is not None
        if part.weight != 1:
            raise UsageError(f"tools.name={config.tools.name}: tools have no weights; write {part.name} alone")
        tools.append(part.extension.load()(part.settings))
    return tools


def build_agent(config: RunConfig, tools: Sequence[ToolSpec]) -> Agent:
    """That of `agent.name`. Raises as its constructor."""
    extension = config.extension("agent")
    if extension is None:
        raise UsageError("workflow=agentic needs an agent: name one with agent.name (rlinf plugins lists them)")
    agent: Agent = extension.load()(config.settings("agent"), tools)
    return agent

"""What can be checked of a run of agents before anything starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlinf_cli.config.errors import raise_if_any
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.workflows.base import Role


def uses_agents(roles: Mapping[str, Role]) -> bool:
    """Whether agents answer the prompts."""
    return "agent" in roles


def check_agents(config: RunConfig) -> None:
    """Raises ConfigError, and what agent and tools raise, at the first thing that is wrong."""
    from rlinf_cli.workers.agents.build import build_agent, build_tools

    raise_if_any(list(_unfit(config)))
    tools = build_tools(config)
    offered = [list(tool.specs()) for tool in tools]
    if all(offered):  # else they are known only once a tool has been opened
        build_agent(config, [spec for specs in offered for spec in specs])


def _unfit(config: RunConfig) -> Iterator[str]:
    agent, rollout = config.agent, config.rollout
    if rollout.overprovision:
        yield (f"rollout.overprovision={rollout.overprovision:g} (from {config.origin('rollout.overprovision')}) does not go "
               "with agents: each of their episodes ends by itself; leave it out")
    if agent.max_tokens <= rollout.max_prompt_tokens:
        yield (f"agent.max_tokens={agent.max_tokens} (from {config.origin('agent.max_tokens')}) is for a task and all that "
               f"follows, and a task alone may have rollout.max_prompt_tokens={rollout.max_prompt_tokens}: raise the one or "
               "lower the other")

"""What can be checked of a run in environments before anything starts: spaces, counts, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlinf_cli.config.errors import raise_if_any
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.flow.placement import Placement
from rlinf_cli.plugins.loader import Plugins
from rlinf_cli.runs.doctor import memory
from rlinf_cli.workflows.base import Role

if TYPE_CHECKING:
    from gymnasium.spaces import Space

COPIES = 4
"""Of a step's experience at once: as it is collected, on its way, joined, and dealt out."""


def acts(roles: Mapping[str, Role]) -> bool:
    """Whether there is an environment to act in."""
    return "environment" in roles


def check_embodied(config: RunConfig, plugins: Plugins) -> None:
    """Raises UsageError, ConfigError, CapacityError, and what the environment raises, at the first thing that is wrong."""
    from rlinf_cli.workers.environments.build import build_environment, spaces

    build_environment(config)
    raise_if_any(list(_unfit(config, plugins)))
    observation, action = spaces(config)
    check_spaces = getattr(config.settings("model"), "problems_with_spaces", None)
    if check_spaces is not None:
        raise_if_any([f"{_chosen(config, 'model.name')} cannot act in {_chosen(config, 'env.name')}: {problem}"
                      for problem in check_spaces(observation, action)])
    _check_memory(config, observation)


def check_ranks(config: RunConfig, placement: Placement) -> None:
    """Whether the environments can be shared out. Raises UsageError."""
    from rlinf_cli.workers.environment import halves_of

    halves = halves_of(config, is_beside(placement))
    for role in ("environment", "rollout"):
        ranks = len(placement[role])
        each = ranks * halves
        if config.env.count % each:
            near = [count for count in (config.env.count // each * each, -(-config.env.count // each) * each) if count]
            raise UsageError(f"env.count={config.env.count} (from {config.origin('env.count')}) cannot be shared out equally "
                             f"among {ranks} ranks of '{role}' in {halves} halves: {' or '.join(map(str, near))} would do"
                             f"{', or env.halves=1' if halves > 1 and config.env.count % ranks == 0 else ''}")


def is_beside(placement: Placement) -> bool:
    """Whether environments and policy share their processes."""
    return any({"environment", "rollout"} <= set(roles) for roles in placement.processes())


def _chosen(config: RunConfig, name: str) -> str:
    section = name.partition(".")[0]
    return f"{name}={getattr(config, section).name} (from {config.origin(name)})"


def _unfit(config: RunConfig, plugins: Plugins) -> Iterator[str]:
    """What does not go with an environment."""
    from rlinf_cli.workers.algorithm import trait

    policies = plugins.names("policy")
    if config.model.name.partition(":")[0] not in policies:
        yield f"{_chosen(config, 'model.name')} is no policy: in an environment acts one of {', '.join(policies)}"
    if not getattr(config.settings("trainer"), "trains_policies", False):
        yield f"{_chosen(config, 'trainer.name')} trains no policies of environments: trainer.name=torch does"
    if not trait(config, "embodied"):
        yield f"{_chosen(config, 'algorithm.name')} does not learn from environments: algorithm.name=ppo does"
    if config.env.count % config.env.group:
        yield f"env.group={config.env.group} (from {config.origin('env.group')}) does not divide env.count={config.env.count}"


def _check_memory(config: RunConfig, observation: Space[Any]) -> None:
    from rlinf_cli.workers.environments.posting import size

    transitions = (config.rollout.steps + 1) * config.env.count
    needed = COPIES * transitions * size(observation)
    _, free = memory()
    if needed > free:
        raise CapacityError(f"the observations of a step, rollout.steps={config.rollout.steps} in env.count={config.env.count} "
                            f"environments, need about {needed / 1e9:.1f} GB in {COPIES} copies, and {free / 1e9:.1f} GB are "
                            "free: lower one of them")

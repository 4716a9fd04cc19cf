"""What a process of a pool is told to make, and how it lies in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlinf_cli.contracts.environment import Environment
from rlinf_cli.workers.environments.share import Share

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv

FPS = 30.0
"""Of a simulator that does not say."""


@dataclass(frozen=True, slots=True)
class Order:
    """Instances for a process: as many for each half."""

    environment: Environment
    count: int
    halves: int
    device: str
    images: bool
    chunk: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a process finds its rows in the memory that all share."""

    count: int
    """Instances of a half, over all processes."""
    rows: slice
    """Those of the process, the same in each half."""


def make_shares(order: Order) -> list[Share]:
    """One a half."""
    return [Share(order.environment.make(order.count, order.device, order.images), order.chunk) for _ in range(order.halves)]


def spaces_of(environment: VectorEnv[Any, Any, Any]) -> tuple[Any, Any]:
    """Of observations and of actions, of one instance."""
    return environment.single_observation_space, environment.single_action_space


def fps_of(environment: VectorEnv[Any, Any, Any]) -> float:
    """Steps that a second of what is simulated has."""
    return float(environment.metadata.get("render_fps", FPS))

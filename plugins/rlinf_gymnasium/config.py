"""Configuration keys of the environment `gymnasium`."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key


@dataclass(frozen=True)
class GymnasiumConfig:
    """Keys of the environment `gymnasium`."""

    task: str = "CartPole-v1"
    """Id of the environment; `MODULE:ID` imports the module that registers it first."""
    max_steps: int = key(0, ge=0)
    """Steps after which an episode is cut; 0: as the id is registered."""

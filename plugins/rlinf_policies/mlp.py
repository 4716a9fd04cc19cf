"""`mlp`: fully connected networks over vectors."""

from __future__ import annotations

from typing import Any

from gymnasium.spaces import Space

from rlinf_policies.actor_critic import ActorCritic
from rlinf_policies.config import MLPConfig


class MLPPolicy(ActorCritic):
    """Contract: `rlinf_cli.api.Policy`."""

    def __init__(self, config: MLPConfig, observation_space: Space[Any], action_space: Space[Any]) -> None:
        super().__init__(config, observation_space, action_space)

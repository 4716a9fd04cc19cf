"""`mlp`: fully connected networks over vectors."""

from __future__ import annotations

from rlinf_policies.actor_critic import ActorCritic


class MLPPolicy(ActorCritic):
    """Contract: `rlinf_cli.api.Policy`."""

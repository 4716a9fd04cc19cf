"""Proximal policy optimisation with a critic."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_algorithms() -> list[Extension]:
    return [Extension("ppo", target="rlinf_ppo.algorithm:PPO", config="rlinf_ppo.config:PPOConfig",
                      summary="proximal policy optimisation: a critic values each token, advantages by GAE",
                      preset={"algorithm.minibatches": 4})]

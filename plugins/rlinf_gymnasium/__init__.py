"""Environments of gymnasium: classic control, MuJoCo, and whatever else is registered there."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_environments() -> list[Extension]:
    return [Extension("gymnasium", target="rlinf_gymnasium.environment:Gymnasium",
                      config="rlinf_gymnasium.config:GymnasiumConfig",
                      summary="any environment registered with gymnasium, by its id: CartPole-v1, InvertedPendulum-v5",
                      requires=("gymnasium",))]

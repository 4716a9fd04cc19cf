"""Behaviour cloning: a policy learns what somebody who knows how has done."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_algorithms() -> list[Extension]:
    return [Extension("bc", target="rlinf_bc.algorithm:BC", config="rlinf_bc.config:BCConfig",
                      summary="behaviour cloning of demonstrations in an environment (rlinf demos)",
                      preset={"workflow": "cloning", "algorithm.epochs": 1})]

"""Group relative policy optimisation."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_algorithms() -> list[Extension]:
    return [Extension("grpo", target="rlinf_grpo.algorithm:GRPO", config="rlinf_grpo.config:GRPOConfig",
                      summary="group relative policy optimisation: clipped surrogate, no critic")]

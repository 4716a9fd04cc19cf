"""Built-in rewards."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_rewards() -> list[Extension]:
    return [Extension("exact", target="rlinf_rewards.exact:Exact", config="rlinf_rewards.config:ExactConfig",
                      summary="1 when the response is the answer: the whole text, or its last number")]

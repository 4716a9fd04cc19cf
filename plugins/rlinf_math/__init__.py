"""Mathematical answers, compared by math-verify."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_rewards() -> list[Extension]:
    return [Extension("math", target="rlinf_math.reward:Math", config="rlinf_math.config:MathConfig",
                      summary="1 when the response's final expression equals the answer: 1/2 is 0.5 and \\frac{1}{2}",
                      requires=("math-verify",), extra="math")]

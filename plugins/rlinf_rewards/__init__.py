"""Built-in rewards."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_rewards() -> list[Extension]:
    return [
        Extension("exact", target="rlinf_rewards.exact:Exact", config="rlinf_rewards.config:ExactConfig",
                  summary="1 when the response is the answer: the whole text, or its last number"),
        Extension("format", target="rlinf_rewards.patterns:Format", config="rlinf_rewards.config:FormatConfig",
                  summary="1 when the response has the form of a pattern, such as <think> and <answer>"),
        Extension("regex", target="rlinf_rewards.patterns:Regex", config="rlinf_rewards.config:RegexConfig",
                  summary="1 when what a pattern finds in the response is the answer"),
        Extension("length", target="rlinf_rewards.length:Length", config="rlinf_rewards.config:LengthConfig",
                  summary="0 for a response of the wanted length, down to -1 beyond it"),
        Extension("model", target="rlinf_rewards.model:ModelReward", config="rlinf_rewards.config:ModelRewardConfig",
                  summary="what a trained reward model says: a sequence classifier of one label"),
        Extension("code", target="rlinf_rewards.code:Code", config="rlinf_rewards.config:CodeConfig",
                  summary="1 when the program in the response passes the row's tests, run with limits"),
    ]

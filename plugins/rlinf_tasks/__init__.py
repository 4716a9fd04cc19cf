"""Built-in tasks that need no data file."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_datasets() -> list[Extension]:
    return [Extension("digits", target="rlinf_tasks.digits:Digits", config="rlinf_tasks.config:DigitsConfig",
                      summary="repeat the last digit of a number; learned from random weights in seconds",
                      preset={"steps": 200, "rollout.prompts": 32, "rollout.max_prompt_tokens": 16, "rollout.max_new_tokens": 3,
                              "reward.extract": "all"})]

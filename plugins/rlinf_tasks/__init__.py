"""Built-in tasks that need no data file, and the reward that one of them needs."""

from __future__ import annotations

from rlinf_cli.api import Extension, hookimpl


@hookimpl
def register_datasets() -> list[Extension]:
    return [
        Extension("digits", target="rlinf_tasks.digits:Digits", config="rlinf_tasks.config:DigitsConfig",
                  summary="repeat the last digit of a number; learned from random weights in seconds",
                  preset={"steps": 200, "rollout.prompts": 32, "rollout.max_prompt_tokens": 16, "rollout.max_new_tokens": 3,
                          "reward.extract": "all"}),
        Extension("sorting", target="rlinf_tasks.sorting:Sorting", config="rlinf_tasks.config:SortingConfig",
                  summary="put digits in order; a few supervised steps first",
                  preset={"steps": 200, "rollout.prompts": 32, "rollout.max_prompt_tokens": 16, "rollout.max_new_tokens": 9,
                          "reward.extract": "all"}),
        Extension("arithmetic", target="rlinf_tasks.arithmetic:Arithmetic", config="rlinf_tasks.config:ArithmeticConfig",
                  summary="sums, differences, products of two numbers, as questions or as bare text",
                  preset={"rollout.max_prompt_tokens": 96, "rollout.max_new_tokens": 24}),
        Extension("countdown", target="rlinf_tasks.countdown:Countdown", config="rlinf_tasks.config:CountdownConfig",
                  summary="reach a number with an expression of given numbers; always solvable",
                  preset={"rollout.max_prompt_tokens": 160, "rollout.max_new_tokens": 256, "reward.name": "countdown"}),
    ]


@hookimpl
def register_rewards() -> list[Extension]:
    return [Extension("countdown", target="rlinf_tasks.countdown_reward:CountdownReward",
                      config="rlinf_tasks.config:CountdownRewardConfig",
                      summary="1 when the response's expression of the row's numbers gives its target")]

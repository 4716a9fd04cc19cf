"""The macro flow for language models that answer prompts: GRPO and its kin.

    prompts ─► rollout ─► reward ─► actor ─► weights ─► rollout
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.workflows.base import Flow, Role

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig


class Reasoning:
    """One response a prompt and sample, scored as it comes, trained a step at a time."""

    def roles(self, config: RunConfig) -> list[Role]:
        return [
            Role("rollout", "rlinf_cli.workers.rollout:RolloutWorker"),
            Role("reward", "rlinf_cli.workers.reward:RewardWorker", ranks="one"),
            Role("actor", "rlinf_cli.workers.actor:ActorWorker", stateful=True),
        ]

    def run(self, flow: Flow) -> None:
        rollout, reward, actor = flow.groups("rollout", "reward", "actor")
        actor.publish_weights(rollout)
        for step in flow.steps():
            prompts, samples, scored = step.channels("prompts", "samples", "scored")
            step.feed(prompts)
            rollout.generate(prompts, samples)
            reward.score(samples, scored)
            actor.train(scored)
            actor.publish_weights(rollout)

"""The macro flow for language models that answer prompts: GRPO and its kin.

    prompts ─► rollout ─► reward ─► [reference] ─► actor ─► weights ─► rollout
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlinf_cli.workers.algorithm import trait
from rlinf_cli.workflows.base import Flow, Role, Step

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel
    from rlinf_cli.flow.group import Group


class Reasoning:
    """Each prompt is answered several times, the answers are scored as they come, and trained a step at a time."""

    def roles(self, config: RunConfig) -> list[Role]:
        reference = [Role("reference", "rlinf_cli.workers.reference:ReferenceWorker", chunked=True)]
        return [
            Role("rollout", "rlinf_cli.workers.rollout:RolloutWorker"),
            Role("reward", "rlinf_cli.workers.reward:RewardWorker", ranks="one", chunked=True),
            *(reference if trait(config, "needs_reference") else []),
            Role("actor", "rlinf_cli.workers.actor:ActorWorker", stateful=True, chunked=True),
        ]

    def run(self, flow: Flow) -> None:
        rollout, actor = flow.groups("rollout", "actor")
        references = flow.groups("reference") if trait(flow.config, "needs_reference") else []
        rounds = trait(flow.config, "rounds")
        actor.publish_weights(rollout)
        for step in flow.steps():
            ready = ready_to_train(flow, step, references)
            for _ in range(rounds - 1):
                # dynamic sampling: more prompts, until enough of them have samples that take part
                if flow.wait(actor.collect(ready))[0]:
                    break
                ready = ready_to_train(flow, step, references)
            actor.train(ready)
            actor.publish_weights(rollout)

    def evaluate(self, flow: Flow, step: Step) -> Channel:
        return answer(flow, step)


def ready_to_train(flow: Flow, step: Step, references: Sequence[Group]) -> Channel:
    """As `answer`, with the log-probabilities of the reference model where there is one."""
    ready = answer(flow, step)
    for reference in references:
        scored, (ready,) = ready, step.channels("referenced")
        reference.score(scored, ready)
    return ready


def answer(flow: Flow, step: Step) -> Channel:
    """Answer and score the next batch of prompts; the channel of scored groups."""
    rollout, reward = flow.groups("rollout", "reward")
    prompts, samples, scored = step.channels("prompts", "samples", "scored")
    step.feed(prompts, samples)
    rollout.generate(prompts, samples)
    reward.score(samples, scored)
    return scored

"""The macro flow for language models that answer prompts: GRPO and its kin, and PPO with its critic.

    prompts ─► rollout ─► reward ─► [reference] ─► [critic] ─► actor ─► weights ─► rollout
                                                       └─► critic
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.workers.algorithm import trait
from rlinf_cli.workers.scoring import is_on_device
from rlinf_cli.workflows.base import Flow, Role, Step

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel


class Reasoning:
    """Each prompt is answered several times, the answers are scored as they come, and trained a step at a time."""

    def roles(self, config: RunConfig) -> list[Role]:
        reference = [Role("reference", "rlinf_cli.workers.reference:ReferenceWorker", scores=True, chunked=True)]
        critic = [Role("critic", "rlinf_cli.workers.critic:CriticWorker", stateful=True, scores=True, chunked=True)]
        return [
            Role("rollout", "rlinf_cli.workers.rollout:RolloutWorker"),
            reward_role(config),
            *(reference if trait(config, "needs_reference") else []),
            *(critic if trait(config, "needs_critic") else []),
            Role("actor", "rlinf_cli.workers.actor:ActorWorker", stateful=True, chunked=True),
        ]

    def run(self, flow: Flow) -> None:
        rollout, actor = flow.groups("rollout", "actor")
        learners = [*(flow.groups("critic") if trait(flow.config, "needs_critic") else []), actor]
        rounds = trait(flow.config, "rounds")
        actor.publish_weights(rollout)
        for step in flow.steps():
            ready = self._ready(flow, step)
            for _ in range(rounds - 1):
                # dynamic sampling: more prompts, until enough of them have samples that take part
                collected = [learner.collect(mine) for learner, mine in zip(learners, ready, strict=True)]
                if all(flow.wait(call)[0] for call in collected):
                    break
                ready = self._ready(flow, step)
            for learner, mine in zip(learners, ready, strict=True):
                learner.train(mine)
            actor.publish_weights(rollout)

    def evaluate(self, flow: Flow, step: Step) -> Channel:
        return self.answer(flow, step)

    def answer(self, flow: Flow, step: Step) -> Channel:
        """Answer and score the next batch of prompts; the channel of scored groups."""
        return answer(flow, step)

    def _ready(self, flow: Flow, step: Step) -> list[Channel]:
        return with_models(flow, step, self.answer(flow, step))


def with_models(flow: Flow, step: Step, ready: Channel) -> list[Channel]:
    """Scored groups, with the log-probabilities of the reference model and the values of the critic where there are such: the
    channels of what the critic learns from, if there is one, and the actor."""
    if trait(flow.config, "needs_reference"):
        (reference,) = flow.groups("reference")
        scored, (ready,) = ready, step.channels("referenced")
        reference.score(scored, ready)
    if not trait(flow.config, "needs_critic"):
        return [ready]
    (critic,) = flow.groups("critic")
    valued, kept = step.channels("valued", "kept")
    critic.estimate(ready, valued, kept)
    return [kept, valued]


def reward_role(config: RunConfig) -> Role:
    """One that scores with a model of its own, on devices, where the configuration names such a reward."""
    if any(map(is_on_device, config.parts("reward"))):
        return Role("reward", "rlinf_cli.workers.reward_model:RewardModelWorker", scores=True, chunked=True)
    return Role("reward", "rlinf_cli.workers.reward:RewardWorker", ranks="one", chunked=True)


def answer(flow: Flow, step: Step) -> Channel:
    """Answer and score the next batch of prompts; the channel of scored groups."""
    rollout, reward = flow.groups("rollout", "reward")
    prompts, samples, scored = step.channels("prompts", "samples", "scored")
    rollout.generate(prompts, samples)
    reward.score(samples, scored)
    step.feed(prompts, samples)  # last, since calls take a moment to begin
    return scored

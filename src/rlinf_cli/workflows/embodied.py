"""The macro flow of embodied tasks: a policy acts in environments, and learns from what came of it.

    environment ⇄ rollout ─► actor ─► weights ─► rollout
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.workflows.base import Flow, Role, Step

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel


class Embodied:
    """Environments and policy pass observations and actions around in a circle, a step's worth at a time."""

    def roles(self, config: RunConfig) -> list[Role]:
        return [
            Role("environment", "rlinf_cli.workers.environment:EnvironmentWorker"),
            Role("rollout", "rlinf_cli.workers.acting:PolicyWorker"),
            Role("actor", "rlinf_cli.workers.embodied_actor:EmbodiedActorWorker", stateful=True),
        ]

    def run(self, flow: Flow) -> None:
        environment, rollout, actor = flow.groups("environment", "rollout", "actor")
        actor.publish_weights(rollout)
        for step in flow.steps():
            observations, actions, segments = step.channels("observations", "actions", "segments")
            environment.interact(actions, observations, rollout, step.index)
            rollout.act(observations, actions, segments, environment)
            actor.train(segments)
            actor.publish_weights(rollout)

    def evaluate(self, flow: Flow, step: Step) -> Channel:
        environment, rollout = flow.groups("environment", "rollout")
        observations, actions, episodes = step.channels("observations", "actions", "episodes")
        environment.show(actions, observations, rollout, episodes)
        rollout.answer(observations, actions, environment)
        return episodes

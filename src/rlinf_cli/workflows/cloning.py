"""The macro flow of behaviour cloning: a policy learns what was demonstrated.

    demonstrations ─► actor          environment ⇄ rollout, to evaluate
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.workflows.base import Flow, Role, Step
from rlinf_cli.workflows.embodied import Embodied

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel


class Cloning:
    """Demonstrations are drawn a step's worth at a time, and trained. Nobody acts, but to evaluate."""

    def roles(self, config: RunConfig) -> list[Role]:
        return [Role("demonstrations", "rlinf_cli.workers.demonstrations:DemonstrationsWorker", ranks="one"),
                *Embodied().roles(config)]

    def run(self, flow: Flow) -> None:
        demonstrations, actor = flow.groups("demonstrations", "actor")
        for step in flow.steps():
            (segments,) = step.channels("segments")
            demonstrations.show(segments, step.index)
            actor.train(segments)

    def evaluate(self, flow: Flow, step: Step) -> Channel:
        if flow.training:
            actor, rollout = flow.groups("actor", "rollout")
            flow.wait(actor.publish_weights(rollout))
        return Embodied().evaluate(flow, step)

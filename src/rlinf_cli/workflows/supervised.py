"""The macro flow of supervised fine-tuning: the policy learns the responses that the data has.

    rows ─► examples ─► actor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.workflows.base import Flow, Role, Step
from rlinf_cli.workflows.reasoning import answer, reward_role

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel


class Supervised:
    """Rows are made into examples of tokens, and trained a step at a time. Nothing is generated, but to evaluate."""

    def roles(self, config: RunConfig) -> list[Role]:
        evaluation = [Role("rollout", "rlinf_cli.workers.rollout:RolloutWorker"), reward_role(config)]
        return [
            Role("examples", "rlinf_cli.workers.examples:ExamplesWorker", ranks="one"),
            *(evaluation if config.eval.every else []),
            Role("actor", "rlinf_cli.workers.actor:ActorWorker", stateful=True),
        ]

    def run(self, flow: Flow) -> None:
        examples, actor = flow.groups("examples", "actor")
        for step in flow.steps():
            rows, tokenised = step.channels("rows", "tokenised")
            step.feed(rows)
            examples.tokenise(rows, tokenised)
            actor.train(tokenised)

    def evaluate(self, flow: Flow, step: Step) -> Channel:
        if flow.training:
            actor, rollout = flow.groups("actor", "rollout")
            flow.wait(actor.publish_weights(rollout))
        return answer(flow, step)

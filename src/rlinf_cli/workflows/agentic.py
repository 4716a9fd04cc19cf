"""The macro flow of agents: a policy that speaks, calls tools, reads their answers, and learns from what came of it.

    tasks ─► agent ⇄ rollout ;  agent ─► reward ─► [reference] ─► [critic] ─► actor ─► weights ─► rollout
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_cli.workflows.base import Flow, Role, Step
from rlinf_cli.workflows.reasoning import Reasoning

if TYPE_CHECKING:
    from rlinf_cli.config.schema import RunConfig
    from rlinf_cli.flow.channel import Channel


class Agentic(Reasoning):
    """As `Reasoning`, but an agent asks for every turn, and answers with the whole episode."""

    def roles(self, config: RunConfig) -> list[Role]:
        return [Role("agent", "rlinf_cli.workers.agents.worker:AgentWorker", ranks="one"), *super().roles(config)]

    def answer(self, flow: Flow, step: Step) -> Channel:
        agent, rollout, reward = flow.groups("agent", "rollout", "reward")
        tasks, requests, turns, samples, scored = step.channels("tasks", "requests", "turns", "samples", "scored")
        rollout.serve(requests, turns)
        agent.run(tasks, turns, requests, samples, rollout)
        reward.score(samples, scored)
        step.feed(tasks)
        return scored

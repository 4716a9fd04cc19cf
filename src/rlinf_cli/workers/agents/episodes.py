"""Running episodes: each a coroutine, as many at once as may be, gathered into the groups that are trained."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rlinf_cli.contracts.agent import Agent, EpisodeOver
from rlinf_cli.contracts.engine import Sampling
from rlinf_cli.errors import UsageError
from rlinf_cli.rl.trajectory import Finish, Prompt, Sample, SampleGroup
from rlinf_cli.sandbox.child import summary
from rlinf_cli.workers.agents.conversation import Dialogue, Surroundings, begin
from rlinf_cli.workers.agents.toolbox import ToolFailure

log = logging.getLogger(__name__)

_MOST_REPORTS = 20
"""Kinds of errors that are written to the log in full."""


@dataclass
class Tally:
    """What a call's episodes have come to."""

    episodes: int = 0
    turns: int = 0
    cut: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    """Why episodes failed -> how many."""

    @property
    def failures(self) -> int:
        return sum(self.failed.values())


class Episodes:
    """Those of one process. `width`: how many run at once."""

    def __init__(self, agent: Agent, around: Surroundings, width: int) -> None:
        self._agent, self._around = agent, around
        self._turns = asyncio.Semaphore(width)
        self._reported: set[str] = set()

    async def group(self, prompt: Prompt, count: int, sampling: Sampling, tally: Tally) -> SampleGroup:
        """So many episodes of one task, side by side; their samples, those of branches too. Raises UsageError for a task that
        cannot be begun."""
        task = self._agent.prepare(prompt)
        found = await _all([self._episode(prompt, task, f"{prompt.id}/{number:04d}", sampling, tally) for number in range(count)])
        return [sample for samples in found for sample in samples]

    async def _episode(self, prompt: Prompt, task: Prompt, name: str, sampling: Sampling, tally: Tally) -> list[Sample]:
        async with self._turns:
            dialogue = begin(name, task, sampling, self._around)
            error = await self._run(dialogue, task)
        tally.episodes += 1
        tally.turns += sum(one.transcript.turns for one in dialogue.all())
        tally.cut += any(one.is_cut for one in dialogue.all())
        if error:
            tally.failed[error] += 1
        return samples_of(dialogue, prompt, error)

    async def _run(self, dialogue: Dialogue, task: Prompt) -> str:
        """Why it failed; empty when it did not."""
        try:
            await self._agent.run(dialogue, task)
        except EpisodeOver:
            return ""
        except UsageError:
            raise
        except ToolFailure as error:
            return str(error)
        except Exception as error:  # whatever an agent raises is counted, told and survived
            said = f"the agent failed: {summary(error)}"
            if said not in self._reported and len(self._reported) < _MOST_REPORTS:
                self._reported.add(said)
                log.warning("episode %s: %s\n%s", dialogue.id, said, traceback.format_exc())
            return said
        return ""


def samples_of(dialogue: Dialogue, prompt: Prompt, error: str) -> list[Sample]:
    """One of the dialogue, and one of each branch, which shares its group and its reward."""
    return [replace(_sample(one, prompt, error), leader="" if one is dialogue else dialogue.id) for one in dialogue.all()
            if one.transcript.turns or one is dialogue]


def _sample(dialogue: Dialogue, prompt: Prompt, error: str) -> Sample:
    transcript = dialogue.transcript
    last = next((said for said in reversed(transcript.said) if said.role == "policy"), None)
    finish: Finish = "length" if dialogue.is_cut or dialogue.last is None else dialogue.last.finish
    mask = transcript.mask if not error else np.zeros_like(transcript.mask)
    return Sample(
        id=dialogue.id, group_id=prompt.id, prompt_ids=transcript.prompt_ids, response_ids=transcript.response_ids, mask=mask,
        logprobs=transcript.logprobs, versions=transcript.versions, finish=finish, prompt=dialogue.text,
        response=last.text if last else "", answer=prompt.answer, columns=prompt.columns, error=error,
        turns=transcript.turns, transcript=tuple(transcript.said), token_rewards=transcript.token_rewards)


async def _all(coroutines: Sequence[Awaitable[list[Sample]]]) -> list[list[Sample]]:
    """Their results in order; when one raises, the others are cancelled, and it is raised once they have ended."""
    tasks = [asyncio.ensure_future(one) for one in coroutines]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise

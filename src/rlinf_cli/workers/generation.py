"""From prompts to samples, with a generation engine: what a rollout does between the weights that it got and the samples
that it gives."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import Completion, Engine, Request, Sampling
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import IntArray, Prompt, Sample, SampleGroup
from rlinf_cli.workers.prompts import PromptEncoder

MANY = 1024
"""Prompts that an evaluation on all rows is taken to have, to share them among replicas."""


@dataclass(frozen=True)
class Task:
    """How prompts of one kind, to train on or to evaluate with, are answered."""

    sampling: Sampling
    responses: int
    """To each prompt."""
    fair: int
    """Prompts that one replica works on at once, at most: the others want work too."""


class Generator:
    """One engine, one of `replicas` that take prompts from the same channel as they have room."""

    def __init__(self, config: RunConfig, device: str, replicas: int) -> None:
        self.model = resolve_model(config.model.name, config.seed, plugins())
        self._encoder = PromptEncoder(self.model, config.rollout.max_prompt_tokens)
        self._tasks = tasks(config, self._encoder.stops(config.rollout.stop), replicas)
        self._task = self._tasks[False]
        extension = config.extension("engine")
        assert extension is not None
        longest = max(task.sampling.max_new_tokens for task in self._tasks.values())
        self.engine: Engine = extension.load()(config.settings("engine"), self.model, device,
                                               config.rollout.max_prompt_tokens + longest)

    def generate(self, prompts: In[Prompt], samples: Out[SampleGroup]) -> None:
        """Answer every prompt, `group_size` times or, for an evaluation, `eval.k` times; a group leaves when its last
        sample is done."""
        open_groups: dict[str, _Group] = {}
        more = True
        while more or self.engine.pending():
            if more and len(open_groups) < self._most():
                more = self._take(prompts, open_groups)
            for completion in self.engine.collect():
                self._finish(completion, open_groups, samples)

    def _most(self) -> int:
        """Groups to work on at once. They are taken to be like the last one: a channel seldom has both kinds."""
        return max(1, min(self._task.fair, self.engine.capacity // self._task.responses))

    def _take(self, prompts: In[Prompt], open_groups: dict[str, _Group]) -> bool:
        try:
            taken = prompts.get(self._most() - len(open_groups), at_least=0 if open_groups else 1)
        except ChannelClosedError:
            return False
        groups = [_Group(prompt, *self._encoder.encode(prompt), self._tasks[prompt.evaluation]) for prompt in taken]
        open_groups.update((group.prompt.id, group) for group in groups)
        self.engine.submit([request for group in groups for request in group.requests()])
        self._task = groups[-1].task if groups else self._task
        return True

    def _finish(self, completion: Completion, open_groups: dict[str, _Group],
                samples: Out[SampleGroup]) -> None:
        group = open_groups[completion.id.rpartition("/")[0]]
        group.add(completion, self._encoder.tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True))
        if group.complete():
            del open_groups[group.prompt.id]
            samples.put(group.samples, weight=sum(len(sample) for sample in group.samples))


class _Group:
    """The samples of one prompt, gathered until all are there: a group is never split."""

    def __init__(self, prompt: Prompt, text: str, ids: IntArray, task: Task) -> None:
        self.prompt, self._text, self._ids, self.task = prompt, text, ids, task
        self.samples: SampleGroup = []

    def requests(self) -> list[Request]:
        return [Request(f"{self.prompt.id}/{number:04d}", self._ids, self.task.sampling)
                for number in range(self.task.responses)]

    def add(self, completion: Completion, text: str) -> None:
        self.samples.append(Sample(
            id=completion.id, group_id=self.prompt.id, prompt_ids=self._ids, response_ids=completion.token_ids,
            mask=np.ones(len(completion.token_ids), np.bool_), logprobs=completion.logprobs,
            versions=completion.versions, finish=completion.finish, prompt=self._text, response=text,
            answer=self.prompt.answer, columns=self.prompt.columns))

    def complete(self) -> bool:
        return len(self.samples) == self.task.responses


def tasks(config: RunConfig, stop: tuple[int, ...], world: int) -> dict[bool, Task]:
    """What is to be done with a prompt, by `Prompt.evaluation`, with `world` replicas."""
    rollout, evaluation = config.rollout, config.eval
    training = Sampling(rollout.max_new_tokens, rollout.temperature, rollout.top_k, rollout.top_p, rollout.min_p, stop,
                        config.seed)
    evaluating = Sampling(evaluation.max_new_tokens or rollout.max_new_tokens, evaluation.temperature,
                          stop_token_ids=stop, seed=config.seed)
    return {False: Task(training, rollout.group_size, math.ceil(rollout.prompts / world)),
            True: Task(evaluating, evaluation.k, math.ceil((evaluation.prompts or MANY) / world))}

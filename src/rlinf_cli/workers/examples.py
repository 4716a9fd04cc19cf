"""The examples role: turns rows into the tokens that supervised training learns."""

from __future__ import annotations

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import Prompt, Sample, SampleGroup
from rlinf_cli.workers.prompts import PromptEncoder
from rlinf_cli.workers.result import TrainResult

CHUNK = 64
"""Rows taken at once."""


class ExamplesWorker(Worker):
    """An example is a sample that the data has written instead of the policy; all of its response is trained."""

    def __init__(self, config: RunConfig) -> None:
        self._longest = config.rollout.max_new_tokens
        model = resolve_model(config.model.name, config.seed, plugins())
        self._encoder = PromptEncoder(model, config.rollout.max_prompt_tokens)
        self._end = self._encoder.end()

    def tokenise(self, rows: In[Prompt], examples: Out[SampleGroup]) -> TrainResult:
        """Each row's example, in a group of its own. One with a response longer than `rollout.max_new_tokens`, the end
        token included, is left out and counted. Raises UsageError for a row without a response."""
        left_out = 0
        for leases in rows.leases(CHUNK, at_least=1):
            too_long = []
            for lease in leases:
                example = self.example(lease.item)
                if len(example.response_ids) <= self._longest:
                    examples.put([example], weight=len(example), settles=[lease])
                else:
                    too_long.append(lease)
            rows.settle(too_long)
            left_out += len(too_long)
        return TrainResult({"rollout/left_out": float(left_out)})

    def example(self, prompt: Prompt) -> Sample:
        target = target_of(prompt)
        text, prompt_ids = self._encoder.encode(prompt)
        ids = np.append(self._encoder.ids(target), np.int32(self._end))
        return Sample(id=f"{prompt.id}/0000", group_id=prompt.id, prompt_ids=prompt_ids, response_ids=ids,
                      mask=np.ones(len(ids), np.bool_), logprobs=np.zeros(len(ids), np.float32),
                      versions=np.zeros(len(ids), np.int32), finish="stop", prompt=text, response=target,
                      answer=prompt.answer, columns=prompt.columns)


def target_of(prompt: Prompt) -> str:
    """The response that a row has: its target, or else its answer."""
    target = prompt.answer if prompt.target is None else prompt.target
    if target is None:
        raise UsageError(f"row {prompt.id} has no response to learn: name its column with data.target_key")
    return target

"""The rollout role: turns prompts into samples with a generation engine."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import Completion, Engine, Request, Sampling
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.weights import Manifest, Receiver
from rlinf_cli.flow.worker import Worker, control
from rlinf_cli.models.load import load_tokenizer
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import IntArray, Prompt, Sample, SampleGroup


class RolloutWorker(Worker):
    """One engine replica. Replicas take prompts from the same channel as they have room."""

    def __init__(self, config: RunConfig) -> None:
        self._rollout = config.rollout
        self._fair = max(1, math.ceil(config.rollout.prompts / self.world))
        self._model = resolve_model(config.model.name, config.seed, plugins())
        self._tokenizer = load_tokenizer(self._model)
        self._sampling = sampling(config, stop_tokens(self._model, self._tokenizer, config.rollout.stop))
        extension = config.extension("engine")
        assert extension is not None
        self._engine: Engine = extension.load()(config.settings("engine"), self._model, self.device,
                                                config.rollout.max_prompt_tokens + config.rollout.max_new_tokens)
        self._receiver = Receiver()

    def generate(self, prompts: In[Prompt], samples: Out[SampleGroup]) -> dict[str, float]:
        """Answer every prompt `group_size` times; a group leaves when its last sample is done."""
        open_groups: dict[str, _Group] = {}
        more = True
        while more or self._engine.pending():
            if more and len(open_groups) < self._most():
                more = self._take(prompts, open_groups)
            for completion in self._engine.collect():
                self._finish(completion, open_groups, samples)
        return dict(self._engine.stats())

    @control
    def update_weights(self, manifest: Manifest, reference: Any | None) -> str:
        """Take over the published weights; the checksum of what the engine then holds."""
        with spent("sync"):
            self._engine.update_weights(manifest.version, self._receiver.tensors(manifest, reference))
            return self._engine.weights_checksum()

    @control
    def abort(self) -> None:
        """End all running requests with what they have."""
        self._engine.abort()

    def close(self) -> None:
        self._engine.close()

    def _most(self) -> int:
        # no more groups at once than fit, nor than this replica's share: the others want work too
        return max(1, min(self._fair, self._engine.capacity // self._rollout.group_size))

    def _take(self, prompts: In[Prompt], open_groups: dict[str, _Group]) -> bool:
        try:
            taken = prompts.get(self._most() - len(open_groups), at_least=0 if open_groups else 1)
        except ChannelClosedError:
            return False
        groups = [_Group(prompt, *self._encode(prompt), self._rollout.group_size) for prompt in taken]
        open_groups.update((group.prompt.id, group) for group in groups)
        self._engine.submit([request for group in groups for request in group.requests(self._sampling)])
        return True

    def _encode(self, prompt: Prompt) -> tuple[str, IntArray]:
        text = prompt.text if prompt.text is not None else self._from_messages(prompt)
        ids = np.asarray(self._tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)
        if not 0 < len(ids) <= self._rollout.max_prompt_tokens:
            raise UsageError(f"prompt {prompt.id} has {len(ids)} tokens; allowed are 1 to "
                             f"rollout.max_prompt_tokens={self._rollout.max_prompt_tokens}: raise it or leave the row out")
        return text, ids

    def _from_messages(self, prompt: Prompt) -> str:
        if not self._tokenizer.chat_template:
            raise UsageError(f"the data has chat messages, but the tokenizer of {self._model} has no chat template: "
                             "use a model with one, or give the prompts as text")
        text: str = self._tokenizer.apply_chat_template(prompt.messages, tokenize=False, add_generation_prompt=True)
        return text

    def _finish(self, completion: Completion, open_groups: dict[str, _Group],
                samples: Out[SampleGroup]) -> None:
        group = open_groups[completion.id.rpartition("/")[0]]
        group.add(completion, self._tokenizer.decode(completion.token_ids.tolist(), skip_special_tokens=True))
        if group.complete():
            del open_groups[group.prompt.id]
            samples.put(group.samples, weight=sum(len(sample) for sample in group.samples))


class _Group:
    """The samples of one prompt, gathered until all are there: a group is never split."""

    def __init__(self, prompt: Prompt, text: str, ids: IntArray, size: int) -> None:
        self.prompt, self._text, self._ids, self._size = prompt, text, ids, size
        self.samples: SampleGroup = []

    def requests(self, sampling: Sampling) -> list[Request]:
        return [Request(f"{self.prompt.id}/{number:04d}", self._ids, sampling) for number in range(self._size)]

    def add(self, completion: Completion, text: str) -> None:
        self.samples.append(Sample(
            id=completion.id, group_id=self.prompt.id, prompt_ids=self._ids, response_ids=completion.token_ids,
            mask=np.ones(len(completion.token_ids), np.bool_), logprobs=completion.logprobs,
            versions=completion.versions, finish=completion.finish, prompt=self._text, response=text,
            answer=self.prompt.answer, columns=self.prompt.columns))

    def complete(self) -> bool:
        return len(self.samples) == self._size


def sampling(config: RunConfig, stop: tuple[int, ...]) -> Sampling:
    rollout = config.rollout
    return Sampling(rollout.max_new_tokens, rollout.temperature, rollout.top_k, rollout.top_p, rollout.min_p, stop,
                    config.seed)


def stop_tokens(model: Path, tokenizer: Any, strings: Sequence[str]) -> tuple[int, ...]:
    """Ids that end a response: the model's own end tokens and the configured stop strings.

    Raises UsageError for a stop string that is not a single token of this tokenizer.
    """
    found = {tokenizer.eos_token_id} | _end_tokens(model / "generation_config.json") | _end_tokens(model / "config.json")
    for string in strings:
        ids = tokenizer(string, add_special_tokens=False)["input_ids"]
        if len(ids) != 1:
            raise UsageError(f"rollout.stop={string!r} is {len(ids)} tokens of this model's tokenizer; "
                             "a stop string must be a single token")
        found.add(ids[0])
    return tuple(sorted(token for token in found if token is not None))


def _end_tokens(path: Path) -> set[int]:
    if not path.is_file():
        return set()
    end = json.loads(path.read_text()).get("eos_token_id")
    return set(end) if isinstance(end, list) else {end}

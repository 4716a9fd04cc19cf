"""`rlinf generate`: answers of a policy, from an engine in this process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlinf_cli.config.load import resolve
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import Engine, Request, Sampling
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.devices import parse_devices
from rlinf_cli.plugins.registry import Plugins
from rlinf_cli.rl.trajectory import Finish, IntArray, Prompt
from rlinf_cli.runs.data import evaluation_sources
from rlinf_cli.runs.evaluation import EvalTask, task_names
from rlinf_cli.runs.reference import Policy
from rlinf_cli.workers.prompts import PromptEncoder

NEW_TOKENS = 256
"""Longest response, unless the user or the run says otherwise."""


@dataclass(frozen=True)
class Asked:
    """How to answer."""

    responses: int = 1
    """To each prompt."""
    temperature: float | None = None
    """None: 0, or 1 for several responses."""
    max_new_tokens: int | None = None
    """None: as the run has it; for a model NEW_TOKENS, or fewer where it was made for fewer."""
    raw: bool = False
    """Texts go to the model as they are, without its chat template."""
    system: str = ""


@dataclass(frozen=True)
class Answer:
    """One response."""

    prompt: int
    """Number of the prompt, from 0."""
    number: int
    """Number among the responses to it, from 0."""
    text: str
    tokens: int
    finish: Finish


def configuration(policy: Policy, overrides: Sequence[str], data: str | None, seed: int | None,
                  plugins: Plugins) -> RunConfig:
    """That of the run, or the defaults for a model; `data` becomes `eval.data`."""
    chosen = [] if data is None else [f"eval.data={data}"]
    model = policy.name if policy.run is None else None
    return resolve(policy.files, [*overrides, *chosen], {"seed": seed, "model": model}, plugins)


class Generator:
    """A policy and its engine. The noise of a response follows from the seed, the prompt's id and its number alone."""

    def __init__(self, policy: Policy, config: RunConfig, asked: Asked, plugins: Plugins) -> None:
        """`config`: see `configuration`. Raises UsageError for what contradicts itself."""
        if asked.responses > 1 and asked.temperature == 0:
            raise UsageError("--temperature 0 gives the same response every time: leave out --n, or raise the temperature")
        if asked.max_new_tokens is None and policy.run is not None:
            asked = replace(asked, max_new_tokens=config.rollout.max_new_tokens)
        self._config, self._asked, self._plugins = config, asked, plugins
        self._model = policy.directory(config, plugins)
        self._longest = longest_sequence(self._model)
        self._encoder = PromptEncoder(self._model, sys.maxsize)

    def rows(self, count: int) -> list[Prompt]:
        """The first rows of `eval.data`, as an evaluation asks them."""
        sources = evaluation_sources(self._config, self._plugins)
        names = task_names([source.name for source in sources])
        return [prompt for name, source in zip(names, sources, strict=True)
                for prompt in EvalTask(name, source, count).prompts]

    def prompts(self, texts: Sequence[str]) -> list[Prompt]:
        """Texts as the user's messages where the model has a chat template, else as they are.

        Raises UsageError for an empty one, and where a system message has no template.
        """
        asked = self._asked
        for number, text in enumerate(texts, 1):
            if not text:
                raise UsageError(f"prompt {number} is empty")
        if asked.raw or not self._encoder.tokenizer.chat_template:
            if asked.system:
                raise UsageError("--system needs a chat template, which "
                                 + ("--raw leaves out" if asked.raw else f"the model in {self._model} does not have"))
            return [Prompt(f"prompt-{number}", text) for number, text in enumerate(texts)]
        before = [{"role": "system", "content": asked.system}] if asked.system else []
        return [Prompt(f"prompt-{number}", messages=[*before, {"role": "user", "content": text}])
                for number, text in enumerate(texts)]

    def answers(self, prompts: Sequence[Prompt]) -> Iterator[Answer]:
        """The responses, each as soon as it has ended."""
        encoded = [ids for _, ids in self._encoder.encode_all(prompts)]
        sampling = self._sampling(max(map(len, encoded)))
        numbers = {prompt.id: number for number, prompt in enumerate(prompts)}
        engine = self._engine(max(map(len, encoded)) + sampling.max_new_tokens)
        engine.submit([request for prompt, ids in zip(prompts, encoded, strict=True)
                       for request in self._requests(prompt, ids, sampling)])
        while engine.pending():
            for done in engine.collect():
                name, _, number = done.id.rpartition("/")
                text = self._encoder.tokenizer.decode(done.token_ids.tolist(), skip_special_tokens=True)
                yield Answer(numbers[name], int(number), text, len(done.token_ids), done.finish)
        engine.close()

    def _requests(self, prompt: Prompt, ids: IntArray, sampling: Sampling) -> list[Request]:
        return [Request(f"{prompt.id}/{number:04d}", ids, sampling) for number in range(self._asked.responses)]

    def _sampling(self, longest_prompt: int) -> Sampling:
        asked, room = self._asked, self._longest - longest_prompt
        most = asked.max_new_tokens or min(NEW_TOKENS, max(1, room))
        if most > room:
            fix = f"--max-new-tokens can be at most {room}" if room > 0 else "shorten it"
            raise UsageError(f"the model in {self._model} was made for {self._longest} tokens, of which the longest prompt "
                             f"takes {longest_prompt}: {fix}")
        temperature = float(asked.responses > 1) if asked.temperature is None else asked.temperature
        return Sampling(most, temperature, stop_token_ids=self._encoder.stops(self._config.rollout.stop),
                        seed=self._config.seed)

    def _engine(self, max_sequence: int) -> Engine:
        # threads that spin on shared cores cost many times what they bring
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        extension = self._config.extension("engine")
        assert extension is not None
        device = "cuda:0" if parse_devices(self._config.cluster.devices).kind == "cuda" else "cpu"
        engine: Engine = extension.load()(self._config.settings("engine"), self._model, device, max_sequence)
        return engine


def longest_sequence(model: Path) -> int:
    """Tokens of prompt and response together that a model was made for, as its configuration says."""
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    found = config.get("max_position_embeddings") or config.get("text_config", {}).get("max_position_embeddings")
    if not isinstance(found, int):
        raise UsageError(f"{model / 'config.json'} does not say for how many tokens the model was made "
                         "(max_position_embeddings)")
    return found

"""From prompts to token ids, the same for every role."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlinf_cli.errors import UsageError
from rlinf_cli.models.load import load_tokenizer
from rlinf_cli.rl.trajectory import IntArray, Prompt


class PromptEncoder:
    """The tokenizer of a model directory, and what a prompt becomes with it."""

    def __init__(self, model: Path, longest: int) -> None:
        """`longest`: most tokens of a prompt."""
        self._model, self._longest = model, longest
        self.tokenizer: Any = load_tokenizer(model)

    def encode(self, prompt: Prompt) -> tuple[str, IntArray]:
        """A prompt as the policy reads it: its text, and int32 [tokens].

        Raises UsageError when it is empty or too long, or has messages that the tokenizer has no chat template for.
        """
        (found,) = self.encode_all([prompt])
        return found

    def encode_all(self, prompts: Sequence[Prompt]) -> list[tuple[str, IntArray]]:
        """As `encode` of each; one call of the tokenizer costs a fraction of many."""
        texts = [self.text(prompt) for prompt in prompts]
        rows = self.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else []
        for prompt, row in zip(prompts, rows, strict=True):
            if not 0 < len(row) <= self._longest:
                raise UsageError(f"prompt {prompt.id} has {len(row)} tokens; allowed are 1 to "
                                 f"rollout.max_prompt_tokens={self._longest}: raise it or leave the row out")
        return [(text, np.asarray(row, np.int32)) for text, row in zip(texts, rows, strict=True)]

    def text(self, prompt: Prompt) -> str:
        """What the policy reads: text as it is, messages through the chat template. Raises UsageError as `encode`."""
        return prompt.text if prompt.text is not None else self._from_messages(prompt)

    def ids(self, text: str) -> IntArray:
        """int32 [tokens], nothing added."""
        return np.asarray(self.tokenizer(text, add_special_tokens=False)["input_ids"], np.int32)

    def stops(self, strings: Sequence[str] = ()) -> tuple[int, ...]:
        """Ids that end a response, ascending: the model's own end tokens and the given stop strings.

        Raises UsageError for a stop string that is not a single token of this tokenizer.
        """
        found = {self.tokenizer.eos_token_id} | _end_tokens(self._model / "generation_config.json") | _end_tokens(
            self._model / "config.json")
        for string in strings:
            ids = self.ids(string).tolist()
            if len(ids) != 1:
                raise UsageError(f"rollout.stop={string!r} is {len(ids)} tokens of this model's tokenizer; "
                                 "a stop string must be a single token")
            found.add(ids[0])
        return tuple(sorted(token for token in found if token is not None))

    def end(self) -> int:
        """The token that ends a response that is to be learned: the tokenizer's own, or one that the model names.

        Raises UsageError when there is none.
        """
        if self.tokenizer.eos_token_id is not None:
            return int(self.tokenizer.eos_token_id)
        stops = self.stops()
        if not stops:
            raise UsageError(f"neither the tokenizer nor the configuration of {self._model} names a token that ends a "
                             "response (eos_token): a model cannot learn to end without one")
        return stops[0]

    def _from_messages(self, prompt: Prompt) -> str:
        if not self.tokenizer.chat_template:
            raise UsageError(f"the data has chat messages, but the tokenizer of {self._model} has no chat template: "
                             "use a model with one, or give the prompts as text")
        text = self._rendered(prompt, prompt.tools)
        if prompt.tools and text == self._rendered(prompt, None):
            raise UsageError(f"the chat template of {self._model} does not tell of tools, and the policy would not know them: "
                             "use a model whose template does, or agent.name=tags")
        return text

    def _rendered(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None) -> str:
        text: str = self.tokenizer.apply_chat_template(prompt.messages, tools=tools, tokenize=False,
                                                       add_generation_prompt=True)
        return text


def _end_tokens(path: Path) -> set[int]:
    if not path.is_file():
        return set()
    end = json.loads(path.read_text()).get("eos_token_id")
    return set(end) if isinstance(end, list) else {end}

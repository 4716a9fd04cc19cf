"""What a chat template puts between two turns: found once by rendering a made-up dialogue, and never by rendering the real one
again, whose earlier turns a template may change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_cli.errors import UsageError

BASE = ({"role": "user", "content": "Hello"}, {"role": "assistant", "content": "RLINF-SAID"})
SAID = BASE[1]["content"]


class ChatTemplate:
    """That of a tokenizer. `where`: the model, for messages."""

    def __init__(self, tokenizer: Any, where: str) -> None:
        self._tokenizer, self._where = tokenizer, where
        self._known: dict[str, tuple[str, str]] = {}

    def following(self, messages: Sequence[Mapping[str, Any]], ended: bool) -> str:
        """The text from the end of a turn of the policy to the begin of its next one, with `messages` in between. `ended`: the
        turn has ended with its end token, as templates end a message; if not, that comes first.

        Raises UsageError where there is no chat template, or none for such messages.
        """
        key = json.dumps([list(messages)], sort_keys=True, default=str)
        if key not in self._known:
            if len(self._known) > 1024:
                self._known.clear()
            self._known[key] = self._found(messages)
        end, rest = self._known[key]
        return rest if ended else end + rest

    def _found(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
        """What ends the turn before, and all that follows."""
        said = self._render([*BASE, *messages], generates=True)
        _, mark, after = said.partition(SAID)
        if not mark or SAID in after:
            raise UsageError(f"the chat template of {self._where} does not show what the assistant has said before: an agent "
                             "cannot go on with its dialogue")
        end = self._end(after)
        return end, after[len(end):]

    def _end(self, after: str) -> str:
        """The token that ends a message, as the text that follows the assistant's words begins with."""
        ends = sorted(self._tokenizer.all_special_tokens, key=len, reverse=True)
        return next((one for one in ends if after.startswith(one)), "")

    def _render(self, messages: Sequence[Mapping[str, Any]], generates: bool) -> str:
        if not self._tokenizer.chat_template:
            raise UsageError(f"the tokenizer of {self._where} has no chat template: use an agent that writes texts instead of "
                             "messages, or a model with one")
        try:
            text: str = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=generates)
        except Exception as error:  # templates are programs of the model's makers and raise what they like
            raise UsageError(f"the chat template of {self._where} refuses these messages: {error}") from error
        return text

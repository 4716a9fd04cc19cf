"""Texts that end a response: which token completes one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlinf_cli.api import load_tokenizer


class Watch:
    """For some texts. Only a token that holds the last character of one of them can complete it: others cost nothing."""

    def __init__(self, texts: Sequence[str], tokenizer: Any, pieces: Sequence[str]) -> None:
        self._texts, self._tokenizer = texts, tokenizer
        ends = {text[-1] for text in texts}
        self._last = frozenset(token for token, piece in enumerate(pieces) if not ends.isdisjoint(piece))
        self._longest = max(len(text.encode()) for text in texts)  # a token has a byte at least

    def completes(self, tokens: Sequence[int]) -> bool:
        """Whether the last of the tokens does, when none before it did."""
        if tokens[-1] not in self._last:
            return False
        text: str = self._tokenizer.decode(tokens[-self._longest :])
        return any(one in text for one in self._texts)


class Stopping:
    """All that is watched for with a model's tokenizer, which is loaded when the first text is."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._tokenizer: Any = None
        self._pieces: Sequence[str] = ()
        self._watches: dict[tuple[str, ...], Watch] = {}

    def watch(self, texts: tuple[str, ...]) -> Watch | None:
        """None where there are no texts. Raises ValueError for an empty one."""
        if not texts:
            return None
        if texts not in self._watches:
            if not all(texts):
                raise ValueError("an empty text cannot end a response")
            self._watches[texts] = Watch(texts, *self._loaded())
        return self._watches[texts]

    def _loaded(self) -> tuple[Any, Sequence[str]]:
        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(self._model)
            self._pieces = self._tokenizer.batch_decode([[token] for token in range(len(self._tokenizer))])
        return self._tokenizer, self._pieces

"""How long prompts are for the policy, found out without a tokenizer wherever that is certain."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from rlinf_cli.data.digest import file_digest, text_digest
from rlinf_cli.data.rows import Row

_FILES = ("tokenizer", "chat_template", "special_tokens", "added_tokens", "vocab", "merges", "spiece")
"""What the names of the files begin with that decide the tokens of a prompt."""

_NFC_GROWTH = 3
"""Most bytes that NFC makes of one byte of UTF-8 (Unicode Standard Annex 15)."""

_PLAIN = {"role", "content"}
_PROBES = ("x", 50 * "x")


class PolicyReader(Protocol):
    """Reads prompts as the policy does; costly to load."""

    def text(self, row: Row) -> str:
        """The prompt with the chat template applied."""
        ...

    def count(self, text: str) -> int:
        """Its tokens."""
        ...


class Lengths:
    """Which prompts have more than `limit` tokens.

    A byte-level tokenizer makes at most one token of a byte, so what has no more bytes than the limit is not too long. A
    chat template adds bytes that depend on the roles: they are measured once for each sequence of roles. Only prompts for
    which this decides nothing are tokenised, and only then is the tokenizer loaded.
    """

    def __init__(self, model: Path, limit: int, load: Callable[[], PolicyReader]) -> None:
        self._limit, self._load = limit, load
        self._byte_level, self._template = is_byte_level(model), template_size(model)
        self._overheads: dict[tuple[str, ...], int | None] = {}

    def excess(self, row: Row) -> int:
        """Tokens of a prompt that is too long; 0 for one that is not."""
        if self._byte_level and self._surely_fits(row):
            return 0
        tokens = self._reader.count(self._reader.text(row))
        return tokens if tokens > self._limit else 0

    @cached_property
    def _reader(self) -> PolicyReader:
        return self._load()

    def _surely_fits(self, row: Row) -> bool:
        if row.messages is None:
            return most_tokens(row.text or "") <= self._limit
        contents = sum(most_tokens(message["content"]) for message in row.messages)
        plain = all(message.keys() == _PLAIN for message in row.messages)
        if contents > self._limit or not plain or not self._template:
            return False
        # a template writes each of its own texts at most once a message
        if contents + (len(row.messages) + 1) * self._template <= self._limit:
            return True
        overhead = self._overhead(tuple(message["role"] for message in row.messages))
        return overhead is not None and contents + overhead <= self._limit

    def _overhead(self, roles: tuple[str, ...]) -> int | None:
        """Most tokens that the template adds to messages of these roles; None when that depends on what they say."""
        if roles not in self._overheads:
            short, long = (self._added(roles, probe) for probe in _PROBES)
            self._overheads[roles] = short if short == long else None
        return self._overheads[roles]

    def _added(self, roles: tuple[str, ...], content: str) -> int:
        row = Row(messages=[{"role": role, "content": content} for role in roles])
        return most_tokens(self._reader.text(row)) - len(roles) * len(content)


def most_tokens(text: str) -> int:
    """Most tokens that a byte-level tokenizer can make of a text."""
    return len(text) if text.isascii() else _NFC_GROWTH * len(text.encode())


def is_byte_level(model: Path) -> bool:
    """Whether the tokenizer of a model directory is certain to make at most one token of each byte (after NFC)."""
    document = _json(model / "tokenizer.json")
    steps = _flat(document.get("pre_tokenizer"), "pretokenizers")
    byte_level = [step for step in steps if step.get("type") == "ByteLevel"]
    normalizers = {step.get("type") for step in _flat(document.get("normalizer"), "normalizers")}
    return (document.get("model", {}).get("type") == "BPE" and bool(byte_level) and normalizers <= {"NFC"}
            and not any(step.get("add_prefix_space") for step in byte_level))


def template_size(model: Path) -> int:
    """Bytes of the chat template of a model directory; 0 when it has none."""
    if (model / "chat_template.jinja").is_file():
        return (model / "chat_template.jinja").stat().st_size
    template = _json(model / "tokenizer_config.json").get("chat_template")
    return len(json.dumps(template).encode()) if template else 0


def tokenizer_digest(model: Path) -> str:
    """Identity of the tokenizer and the chat template of a model directory."""
    files = [path for path in sorted(model.iterdir()) if path.is_file() and path.name.startswith(_FILES)]
    return text_digest(part for path in files for part in (path.name, file_digest(path)))


def _flat(step: Any, several: str) -> list[dict[str, Any]]:
    """The steps of a tokenizer's stage, which is one step, a sequence of them, or none."""
    if not step:
        return []
    return [step] if step.get("type") != "Sequence" else [one for part in step[several] for one in _flat(part, several)]


def _json(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return document if isinstance(document, dict) else {}

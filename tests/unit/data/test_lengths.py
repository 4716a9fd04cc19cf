from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from rlinf_cli.data.lengths import Lengths, is_byte_level, most_tokens, template_size, tokenizer_digest
from rlinf_cli.data.rows import Row

TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}<assistant>"


def byte_level(*merges: tuple[str, str]) -> Tokenizer:
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: number for number, symbol in enumerate([*symbols, *(a + b for a, b in merges)])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    return made


class Reader:
    """Tokenises bytes and renders `TEMPLATE`."""

    tokenizer = byte_level(("a", "a"), ("aa", "aa"))

    def __init__(self) -> None:
        self.read: list[Row] = []

    def text(self, row: Row) -> str:
        self.read.append(row)
        if row.text is not None:
            return row.text
        return "".join("<{role}>{content}</{role}>".format(**message) for message in row.messages or ()) + "<assistant>"

    def count(self, text: str) -> int:
        return len(self.tokenizer.encode(text).ids)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Reader.tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    return tmp_path


@pytest.fixture
def lengths(model: Path) -> Callable[[int], tuple[Lengths, list[Reader]]]:
    def make(limit: int) -> tuple[Lengths, list[Reader]]:
        loaded: list[Reader] = []

        def load() -> Reader:
            loaded.append(Reader())
            return loaded[-1]

        return Lengths(model, limit, load), loaded

    return make


def user(content: str, *more: str) -> Row:
    return Row(messages=[{"role": "user", "content": text} for text in (content, *more)])


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_no_text_has_more_tokens_than_that(text: str) -> None:
    assert len(Reader.tokenizer.encode(text).ids) <= most_tokens(text)


@pytest.mark.parametrize("text", ["\u0958", "\U0001d160", "\ufb2c"])
def test_normalisation_that_lengthens_is_counted(text: str) -> None:
    assert len(Reader.tokenizer.encode(text).ids) > len(text.encode())
    assert len(Reader.tokenizer.encode(text).ids) <= most_tokens(text)


def test_short_text_needs_no_tokenizer(lengths: Any) -> None:
    measured, loaded = lengths(10)
    assert [measured.excess(Row(text=text)) for text in ("a", "b" * 10, "äa")] == [0, 0, 0]
    assert loaded == []


def test_text_near_the_limit_is_tokenised(lengths: Any) -> None:
    measured, loaded = lengths(10)
    assert measured.excess(Row(text="a" * 40)) == 0  # ten tokens
    assert measured.excess(Row(text="a" * 41)) == 11
    assert measured.excess(Row(text="b" * 11)) == 11
    assert measured.excess(Row(text="é" * 5)) == 0
    assert len(loaded) == 1


def test_short_messages_need_no_template(lengths: Any) -> None:
    measured, loaded = lengths(400)
    assert measured.excess(user("b" * 100)) == 0
    assert loaded == []


def test_what_the_template_adds_is_measured_once_for_each_sequence_of_roles(lengths: Any) -> None:
    measured, loaded = lengths(60)  # <user></user><assistant>: 24
    assert [measured.excess(user("b" * n)) for n in (30, 36, 37, 50)] == [0, 0, 61, 74]
    assert [measured.excess(user("b", "b" * n)) for n in (22, 23)] == [0, 61]
    probes = [row for row in loaded[0].read if row.messages and set(row.messages[0]["content"]) == {"x"}]
    assert len(probes) == 4
    assert len(loaded) == 1


def test_only_what_is_near_is_rendered(lengths: Any) -> None:
    measured, loaded = lengths(60)
    for _ in range(100):
        measured.excess(user("b" * 30))
    assert len(loaded[0].read) == 2


def test_a_template_that_looks_at_the_content_is_applied_to_every_row(model: Path) -> None:
    class Shouting(Reader):
        def text(self, row: Row) -> str:
            return super().text(row) + "!" * len((row.messages or [{}])[0].get("content", ""))

    measured = Lengths(model, 60, Shouting)
    assert [measured.excess(user("b" * n)) for n in (18, 19)] == [0, 62]


def test_messages_with_other_fields_are_rendered(lengths: Any) -> None:
    measured, loaded = lengths(400)
    row = Row(messages=[{"role": "user", "content": "b", "tool_calls": "x"}])
    assert measured.excess(row) == 0
    assert loaded[0].read == [row]


def test_other_tokenizers_read_every_row(model: Path) -> None:
    document = json.loads((model / "tokenizer.json").read_text())
    (model / "tokenizer.json").write_text(json.dumps({**document, "normalizer": {"type": "NFKC"}}))
    loaded: list[Reader] = []
    measured = Lengths(model, 10, lambda: loaded.append(Reader()) or loaded[0])
    assert [measured.excess(Row(text=text)) for text in ("b", "b" * 11)] == [0, 11]
    assert len(loaded[0].read) == 2


BYTES, SPACES = {"type": "ByteLevel", "add_prefix_space": False}, {"type": "Metaspace"}


@pytest.mark.parametrize(("document", "expected"), [
    ({"model": {"type": "BPE"}, "pre_tokenizer": BYTES}, True),
    ({"model": {"type": "BPE"}, "pre_tokenizer": BYTES, "normalizer": {"type": "NFC"}}, True),
    ({"model": {"type": "BPE"}, "pre_tokenizer": BYTES, "normalizer": {"type": "Sequence", "normalizers": []}}, True),
    ({"model": {"type": "BPE"}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split"}, BYTES]}}, True),
    ({"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}}, False),
    ({"model": {"type": "BPE"}, "pre_tokenizer": BYTES, "normalizer": {"type": "Prepend"}}, False),
    ({"model": {"type": "BPE"}, "pre_tokenizer": SPACES}, False),
    ({"model": {"type": "BPE"}, "pre_tokenizer": None, "normalizer": None}, False),
    ({"model": {"type": "Unigram"}, "pre_tokenizer": BYTES}, False),
    ({"model": {"type": "WordPiece"}, "pre_tokenizer": BYTES}, False),
    ({}, False),
])
def test_which_tokenizers_are_byte_level(tmp_path: Path, document: dict[str, Any], expected: bool) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    assert is_byte_level(tmp_path) is expected


def test_a_directory_without_tokenizer_json(tmp_path: Path) -> None:
    assert not is_byte_level(tmp_path)
    assert template_size(tmp_path) == 0


def test_where_a_template_may_be(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": [{"name": "default", "template": "ä" * 9}]}))
    assert template_size(tmp_path) >= 18
    (tmp_path / "chat_template.jinja").write_text("abc")
    assert template_size(tmp_path) == 3


def test_the_digest_follows_tokenizer_and_template_alone(model: Path) -> None:
    first = tokenizer_digest(model)
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "config.json").write_text("{}")
    assert tokenizer_digest(model) == first
    (model / "chat_template.jinja").write_text("other")
    assert tokenizer_digest(model) != first

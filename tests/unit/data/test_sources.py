from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf_cli.config.schema import Part
from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.rows import Row
from rlinf_cli.data.sources import Source, fingerprint, open_sources, with_system_prompt
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.extension import Extension
from rlinf_tasks.config import DigitsConfig

DIGITS = Part("digits", extension=Extension("digits", target="rlinf_tasks.digits:Digits"), settings=DigitsConfig())
Write = Callable[..., Path]

USER = {"role": "user", "content": "2 + 2?"}
SAID = {"role": "assistant", "content": "4"}
SYSTEM = {"role": "system", "content": "Be brief."}


class Fixed:
    def __init__(self, row: Row) -> None:
        self.size, self._row = 1, row

    def row(self, index: int) -> Row:
        return self._row

    def where(self, index: int) -> str:
        return f"fixed, row {index}"


@pytest.mark.parametrize(("row", "messages"), [
    (Row(messages=[USER]), [SYSTEM, USER]),
    (Row(text="2 + 2?"), [SYSTEM, USER]),
    (Row(messages=[{"role": "system", "content": "Ramble."}, USER]), [SYSTEM, USER]),
    (Row(messages=[{"role": "developer", "content": "Ramble."}, USER]), [SYSTEM, USER]),
    (Row(messages=[USER, SAID, USER]), [SYSTEM, USER, SAID, USER]),
])
def test_a_system_prompt_comes_before_the_messages(row: Row, messages: list[dict[str, str]]) -> None:
    before = repr(row)
    assert with_system_prompt(row, "Be brief.") == Row(messages=messages)
    assert repr(row) == before
    assert Source("fixed", Fixed(row), system_prompt="Be brief.").row(0).messages == messages


def test_the_rest_of_a_row_is_kept() -> None:
    row = Row(text="a", answer="b", columns={"level": 1}, target="c")
    dressed = with_system_prompt(row, "x")
    assert (dressed.answer, dressed.columns, dressed.target) == ("b", {"level": 1}, "c")


def test_what_is_learned_is_the_answer_where_there_is_no_target() -> None:
    assert Source("fixed", Fixed(Row(text="a", answer="b")), supervised=True).row(0).target == "b"
    assert Source("fixed", Fixed(Row(text="a", answer="b", target="c")), supervised=True).row(0).target == "c"
    assert Source("fixed", Fixed(Row(text="a", answer="b"))).row(0).target is None
    with pytest.raises(UsageError, match="fixed, row 0: there is no response to learn"):
        Source("fixed", Fixed(Row(text="a")), supervised=True).row(0)


def test_several_sources_are_told_apart_by_a_column(write: Write) -> None:
    named = write({"prompt": "a", "data_source": "sums"}, name="named.jsonl")
    plain = write({"prompt": "b", "level": 1}, name="plain.jsonl")
    first, second, third = open_sources([Part(str(named)), Part(str(plain), 0.5), DIGITS], 0)
    assert first.row(0).columns == {"data_source": "sums"}
    assert second.row(0).columns == {"level": 1, "data_source": str(plain)}
    assert third.row(0).columns == {"data_source": "digits"}
    assert [source.weight for source in (first, second, third)] == [1.0, 0.5, 1.0]
    (alone,) = open_sources([Part(str(plain))], 0)
    assert alone.row(0).columns == {"level": 1}


def test_keys_of_columns_need_a_file(write: Write) -> None:
    path = write({"q": "a"})
    for key in ("prompt_key", "answer_key", "target_key"):
        with pytest.raises(UsageError, match=rf"data\.{key} names a column of a file, but data.name=digits is a generator"):
            open_sources([DIGITS], 0, Reading(**{key: "q"}))
    assert len(open_sources([DIGITS, Part(str(path))], 0, Reading(prompt_key="q"))) == 2
    assert len(open_sources([DIGITS], 0, Reading(prompt_key="q"), option="eval.data")) == 1


def test_kept_rows_keep_their_numbers(write: Write) -> None:
    (source,) = open_sources([Part(str(write(*({"prompt": f"p{n}"} for n in range(5)))))], 0)
    kept = Source(source.name, source.dataset, kept=[1, 3])
    assert (kept.size, kept.row(1).text, kept.number(1)) == (2, "p3", 3)
    assert re.search(r"line 4$", kept.where(1))
    assert not kept.deferred


def test_the_fingerprint_is_that_of_contents_and_weights(write: Write) -> None:
    def of(*parts: Part, seed: int = 0, **more: Any) -> str:
        return fingerprint(open_sources(parts, seed, **more))

    one, two = (Part(str(write({"prompt": text}, name=f"{text}.jsonl"))) for text in "ab")
    half = Part(two.name, 0.5)
    prints = [of(one), of(two), of(one, two), of(two, one), of(one, half), of(DIGITS), of(DIGITS, seed=1), of(one, DIGITS)]
    assert len(set(prints)) == len(prints)
    moved = Part(str(write({"prompt": "a"}, name="moved.jsonl")))
    assert of(moved) == of(one)
    assert of(one, system_prompt="Be brief.") == of(one)

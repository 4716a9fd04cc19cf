from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlinf_cli.data.files import open_file
from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.rows import Row
from rlinf_cli.errors import UsageError

Write = Callable[..., Path]


def refused(path: Path, **keys: str) -> str:
    """What the user is told when the file is opened: one line."""
    with pytest.raises(UsageError) as caught:
        open_file(path, Reading(**keys))
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_layouts_in_files(fixtures: Path) -> None:
    gsm8k, verl, plain = (JsonlDataset(fixtures / f"{name}.jsonl") for name in ("gsm8k", "verl", "prompts"))
    assert [gsm8k.row(i).answer for i in range(3)] == ["72", "12300", "-3"]
    assert [verl.row(i).answer for i in range(2)] == ["4", "7"]
    assert [plain.row(i).columns for i in range(3)] == [{"level": 1}, {"level": 2}, {"level": 3}]
    assert plain.row(2).messages == [{"role": "user", "content": "Which digit ends 15?"}]
    assert (gsm8k.size, verl.size, plain.size) == (3, 2, 3)


def test_rows_come_in_any_order_and_again(write: Write) -> None:
    data = JsonlDataset(write(*({"prompt": f"p{i}ä", "n": i} for i in range(50))))
    for index in (49, 0, 17, 17):
        assert data.row(index) == Row(text=f"p{index}ä", columns={"n": index})


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.ndjson", "ROWS.JSONL"])
def test_byte_order_mark_windows_line_ends_and_blank_lines(write: Write, name: str) -> None:
    path = write({"prompt": "a"}, "", "  \t", {"prompt": "b"}, name=name, end=b"\r\n", start=b"\xef\xbb\xbf")
    data = JsonlDataset(path)
    assert [data.row(i).text for i in range(2)] == ["a", "b"]
    assert data.size == 2


def test_last_line_without_line_end_and_separators_inside_text(write: Write) -> None:
    data = JsonlDataset(write({"prompt": "a\u2028b\x85c"}, end=b""))
    assert data.row(0).text == "a\u2028b\x85c"


def test_line_numbers_count_blank_lines(write: Write) -> None:
    path = write("", {"prompt": "a"}, "", {"prompt": 1})
    assert refused(path) == f"{path}, line 4: 'prompt' is a number, expected text or a list of chat messages"


@pytest.mark.parametrize(("line", "message"), [
    ('{"prompt": "a" "b"}',
     "line 2, column 16: not valid JSON (Expecting ',' delimiter); each line must hold one JSON object"),
    ('{"prompt": "a"', "line 2, column 15: not valid JSON"),
    ('{"prompt": "ä", }', "line 2, column 17: not valid JSON"),
    ("{'prompt': 'a'}", "line 2, column 2: not valid JSON"),
    ('["a"]', "line 2: expected a JSON object, found '[\"a\"]'"),
    ('"a"', "line 2: expected a JSON object"),
    ("null", "line 2: expected a JSON object, found 'null'"),
    ('{"prompt": "a"}{"prompt": "b"}', "line 2, column 16: not valid JSON (Extra data)"),
    ("[" * 100_000, "line 2: cannot be read as JSON ("),
    ('{"prompt": "a", "x": ' + "9" * 5000 + "}", "line 2: cannot be read as JSON (Exceeds the limit"),
    ('{"prompt": "a\\uD83d b"}', "line 2: the escape \\ud83d is half of a character"),
    ('{"prompt": "a", "x": {"\\udc00": 1}}', "line 2: the escape \\udc00 is half of a character"),
    (b'{"prompt": "\xe4"}', "line 2: not UTF-8 at byte 28 of the file; convert it"),
])
def test_malformed_lines(write: Write, line: str | bytes, message: str) -> None:
    path = write({"prompt": "a"}, line, {"prompt": "c"})
    assert refused(path).startswith(f"{path}, {message}")


def test_emoji_may_be_escaped(write: Write) -> None:
    assert JsonlDataset(write('{"prompt": "\\ud83d\\ude00"}')).row(0).text == "😀"


def test_utf16_is_named(write: Write) -> None:
    path = write('{"prompt": "a"}'.encode("utf-16"))
    assert refused(path) == f"{path}, line 1: not UTF-8 at byte 0 of the file; convert it"


def test_rows_that_deviate_from_the_first(write: Write) -> None:
    first = {"prompt": "a", "answer": "1"}
    assert refused(write(first, {"prompt": "b"})).endswith(
        "line 2: no column 'answer' (columns: prompt); see data.answer_key")
    assert refused(write({"prompt": "b"}, first)).endswith("line 2: it has an answer, but the first row has none")
    assert refused(write(first, {"question": "c", "answer": "1"})).endswith(
        "line 2: no column 'prompt' (columns: question, answer); see data.prompt_key")


def test_keys_are_passed_on(write: Write) -> None:
    path = write({"q": {"text": "a"}, "a": 1})
    assert JsonlDataset(path, Reading("q.text", "a")).row(0) == Row(text="a", answer="1", columns={"q": {"text": "a"}})
    assert "no column 'x'" in refused(path, prompt_key="q.text", answer_key="x")


def test_missing_file_names_the_nearest(write: Write, tmp_path: Path) -> None:
    write({"prompt": "a"}, name="train.jsonl")
    assert refused(tmp_path / "trian.jsonl") == f"no file {tmp_path}/trian.jsonl; did you mean 'train.jsonl'"
    assert refused(tmp_path / "x.parquet") == f"no file {tmp_path}/x.parquet"
    assert refused(tmp_path / "no" / "a.jsonl") == f"no file {tmp_path}/no/a.jsonl: there is no directory {tmp_path}/no"


def test_directories_and_special_files(write: Write, tmp_path: Path) -> None:
    assert refused(tmp_path) == f"{tmp_path} is a directory; name a file in it"
    write({"prompt": "a"}, name="b.jsonl")
    write({"prompt": "a"}, name="a.jsonl")
    assert refused(tmp_path).endswith("name a file in it: a.jsonl, b.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert refused(tmp_path / "pipe.jsonl") == f"{tmp_path}/pipe.jsonl is not a regular file"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(write: Write) -> None:
    path = write({"prompt": "a"})
    path.chmod(0)
    assert refused(path) == f"cannot read {path}: Permission denied"


@pytest.mark.parametrize("name", ["a.csv", "a.json", "a.jsonl.gz", "jsonl"])
def test_other_formats(write: Write, name: str) -> None:
    path = write({"prompt": "a"}, name=name)
    assert refused(path).startswith(f"cannot read {path}: data is read from .jsonl, .ndjson and .parquet files")


def test_nothing_in_the_file(write: Write) -> None:
    path = write()
    assert refused(path) == f"{path} is empty; write one row or more"
    assert refused(write("", "   ")) == f"{path} holds no rows; write one JSON object a line"
    assert refused(write(start=b"\xef\xbb\xbf")).endswith("holds no rows; write one JSON object a line")


def test_a_file_that_changes_in_use_is_noticed(write: Write) -> None:
    data = JsonlDataset(write({"prompt": "a"}, {"prompt": "b"}))
    path = write({"longer": "than before"}, {"prompt": "b"})
    with pytest.raises(UsageError, match=re.escape(f"{path}, line 2")):
        data.row(1)


def test_a_data_set_can_be_sent_to_another_process(fixtures: Path) -> None:
    data = JsonlDataset(fixtures / "verl.jsonl")
    assert pickle.loads(pickle.dumps(data)).row(1) == data.row(1)


def test_a_hundred_thousand_rows(write: Write) -> None:
    text = "How many clips are sold altogether in April and in May? " * 4
    rows = (json.dumps({"question": text, "answer": f"{text}#### {i}", "level": i % 5}) for i in range(100_000))
    path = write("\n".join(rows))
    began = time.process_time()
    data = JsonlDataset(path)
    assert time.process_time() - began < 2
    assert data.row(99_999).answer == "99999"


def test_nothing_heavy_is_imported() -> None:
    code = ("import sys, rlinf_cli.data.datasets, rlinf_cli.data.stream;"
            "print([m for m in ('numpy', 'torch', 'ray', 'transformers') if m in sys.modules])")
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["prompt", "answer", "question", "messages", "role", "content", "reward_model"]),
        inner, max_size=4), max_leaves=12)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.binary(max_size=20) | JSON_LIKE.map(lambda value: json.dumps(value).encode()), max_size=4))
def test_any_content_gives_rows_or_one_sentence(tmp_path: Path, lines: list[bytes]) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(b"\n".join(lines))
    try:
        data = JsonlDataset(path)
    except UsageError:
        return
    for index in range(data.size or 0):
        row = data.row(index)
        assert (row.text is None) != (row.messages is None)
        assert row.answer is None or isinstance(row.answer, str)

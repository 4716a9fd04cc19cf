from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rlinf_cli.data.parquet as module
from rlinf_cli.data.files import open_file
from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.parquet import ParquetDataset
from rlinf_cli.data.rows import Row
from rlinf_cli.errors import PluginError, UsageError

Table = Callable[..., Path]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Write rows into a Parquet file, `group` rows a row group."""

    def write(*rows: dict[str, Any], group: int | None = None, name: str = "rows.parquet", schema: Any = None) -> Path:
        made = pa.Table.from_pylist(list(rows), schema=schema)
        pq.write_table(made, tmp_path / name, row_group_size=group)
        return tmp_path / name

    return write


def refused(path: Path, **keys: str) -> str:
    with pytest.raises(UsageError) as caught:
        open_file(path, Reading(**keys))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["verl", "gsm8k"])
def test_a_file_means_the_same_in_both_formats(fixtures: Path, table: Table, name: str) -> None:
    path = fixtures / f"{name}.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    if name == "verl":  # a Parquet column has one type
        for record in records:
            record["reward_model"]["ground_truth"] = str(record["reward_model"]["ground_truth"])
    data, lines = ParquetDataset(table(*records)), JsonlDataset(path)
    assert data.size == lines.size == len(records)
    for index in range(data.size):
        row = data.row(index)
        assert (row.text, row.messages, row.answer) == (
            lines.row(index).text, lines.row(index).messages, lines.row(index).answer)
        assert list(row.columns) == list(lines.row(index).columns)


def test_verl_as_it_is(table: Table) -> None:
    """Structs with fields that a row lacks, lists, and columns of NumPy types: all become plain Python."""
    rows = [{"data_source": "openai/gsm8k", "ability": "math",
             "prompt": [{"role": "system", "content": "Think."}, {"role": "user", "content": f"{n} + 1?", "name": "Noor"}],
             "reward_model": {"style": "rule", "ground_truth": str(n + 1)},
             "extra_info": {"split": "train", "index": n, "scores": [0.5, n], **({"hint": "count"} if n else {})}}
            for n in range(3)]
    data = ParquetDataset(table(*rows))
    assert data.row(1) == Row(
        messages=[{"role": "system", "content": "Think."}, {"role": "user", "content": "1 + 1?", "name": "Noor"}], answer="2",
        columns={"data_source": "openai/gsm8k", "ability": "math", "reward_model": {"style": "rule", "ground_truth": "2"},
                 "extra_info": {"split": "train", "index": 1, "scores": [0.5, 1.0], "hint": "count"}})
    assert data.row(0).columns["extra_info"]["hint"] is None
    assert json.loads(json.dumps(dict(data.row(2).columns))) == data.row(2).columns


def test_typed_columns(table: Table) -> None:
    schema = pa.schema([("prompt", pa.dictionary(pa.int32(), pa.string())), ("answer", pa.int32()),
                        ("embedding", pa.list_(pa.float32())), ("large", pa.large_string())])
    data = ParquetDataset(table({"prompt": "a", "answer": 7, "embedding": [0.5], "large": "b"}, schema=schema))
    assert data.row(0) == Row(text="a", answer="7", columns={"embedding": [0.5], "large": "b"})


@pytest.mark.parametrize("group", [1, 7, 50])
def test_rows_come_in_any_order_and_again(table: Table, group: int) -> None:
    data = ParquetDataset(table(*({"prompt": f"p{n}", "n": n} for n in range(50)), group=group))
    assert data.size == 50
    for index in (49, 0, 17, 6, 7, 17):
        assert data.row(index) == Row(text=f"p{index}", columns={"n": index})


def test_row_groups_are_read_when_needed_and_kept_while_there_is_room(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    data = ParquetDataset(table(*({"prompt": f"p{n}"} for n in range(40)), group=10))
    read: list[int] = []
    monkeypatch.setattr(data, "_read", lambda number: read.append(number) or ParquetDataset._read(data, number))
    for index in (0, 5, 15, 39, 3):
        data.row(index)
    assert read == []  # all four were kept when they were checked
    monkeypatch.setattr(module, "HELD", 1)
    for index in (15, 16, 3, 4, 39):
        data.row(index)
    assert len(data._groups) <= 4
    data._groups.clear()
    read.clear()
    for index in (15, 16, 3, 4, 15):
        assert data.row(index).text == f"p{index}"
    assert read == [1, 0, 1]


def test_errors_name_the_row(table: Table) -> None:
    path = table({"prompt": "a"}, {"prompt": "b"}, {"prompt": ""}, group=2)
    assert refused(path) == f"{path}, row 2: 'prompt' is empty"
    path = table({"promt": "a"})
    assert refused(path).startswith(f"{path}, row 0: no column 'prompt', 'question' or 'messages' (columns: promt)")
    path = table({"prompt": "a", "answer": None}, {"prompt": "b", "answer": "1"})
    assert refused(path).endswith("row 1: it has an answer, but the first row has none")
    path = table({"prompt": "a", "answer": b"bytes"})
    assert refused(path).endswith("row 0: the answer 'answer' is of type bytes, expected text or a number")


def test_keys_are_passed_on(table: Table) -> None:
    path = table({"q": {"text": "a"}, "a": 1, "said": "one"})
    assert ParquetDataset(path, Reading("q.text", "a")).row(0).answer == "1"
    assert ParquetDataset(path, Reading("q.text", target_key="said", supervised=True)).row(0).target == "one"
    assert "no column 'x'" in refused(path, prompt_key="q.text", answer_key="x")


def test_files_that_are_no_parquet(tmp_path: Path, table: Table) -> None:
    path = tmp_path / "text.parquet"
    path.write_text('{"prompt": "a"}\n')
    assert refused(path).startswith(f"{path} is no complete Parquet file (")
    whole = table({"prompt": "a" * 1000})
    whole.write_bytes(whole.read_bytes()[:-20])
    assert refused(whole).startswith(f"{whole} is no complete Parquet file (")
    path.write_bytes(b"")
    assert refused(path) == f"{path} is empty; write one row or more"
    assert refused(table(schema=pa.schema([("prompt", pa.string())]))).endswith("rows.parquet holds no rows")


def test_damage_inside_is_told(table: Table) -> None:
    path = table(*({"prompt": f"p{n}" * 100} for n in range(100)), group=50)
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    assert refused(path).startswith(f"cannot read row 0 and those after it of {path}: ")


def test_without_pyarrow_the_extra_is_named(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    path, original = table({"prompt": "a"}), builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return original(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PluginError, match=r"needs pyarrow, not installed here; run: pip install 'rlinf-cli\[parquet\]'$"):
        open_file(path, Reading())


def test_the_fingerprint_is_that_of_the_content(table: Table) -> None:
    one, same = (ParquetDataset(table({"prompt": "a"}, name=name)) for name in ("one.parquet", "two.parquet"))
    assert one.fingerprint() == same.fingerprint() != ParquetDataset(table({"prompt": "b"})).fingerprint()

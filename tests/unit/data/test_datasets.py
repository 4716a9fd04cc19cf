from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlinf_cli.data.datasets import open_dataset
from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.extension import Extension

DIGITS = Extension("digits", target="rlinf_tasks.digits:Digits", config="rlinf_tasks.config:DigitsConfig")


@dataclass(frozen=True)
class Length:
    length: int


def test_an_extension_gets_its_settings_and_the_seed() -> None:
    short, other = (open_dataset("digits", seed, extension=DIGITS, config=Length(4)) for seed in (1, 2))
    assert short.size is None
    assert re.fullmatch(r"d\d{4}=", short.row(0).text or "")
    assert [short.row(i) for i in range(5)] != [other.row(i) for i in range(5)]


def test_a_file_gets_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "a", "gold": 1}\n')
    data = open_dataset(str(path), seed=0, prompt_key="q", answer_key="gold")
    assert isinstance(data, JsonlDataset)
    assert (data.row(0).text, data.row(0).answer) == ("a", "1")


@pytest.mark.parametrize(("keys", "message"), [
    ({"prompt_key": "q"}, "data.prompt_key names a column of a file, but data.name=digits is a generator; leave it"),
    ({"answer_key": "a"}, "data.answer_key names a column"),
])
def test_keys_do_not_apply_to_extensions(keys: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_dataset("digits", 0, extension=DIGITS, config=Length(2), **keys)


@pytest.mark.parametrize(("name", "message"), [
    ("digit", "data.name=digit is neither a file nor a known data set (digits, sums); did you mean 'digits'"),
    ("squad", "data.name=squad is neither a file nor a known data set (digits, sums)"),
    ("squad.jsonl", "no file squad.jsonl"),
    ("some/squad", "no file some/squad: there is no directory some"),
])
def test_unknown_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        open_dataset(name, 0, known=("sums", "digits"))
    assert str(caught.value) == message


def test_a_directory_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError, match="data is a directory; name a file in it"):
        open_dataset("data", 0)

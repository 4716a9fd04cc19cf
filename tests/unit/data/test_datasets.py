from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from rlinf_cli.config.schema import Part
from rlinf_cli.data.datasets import held_out, open_dataset
from rlinf_cli.data.hub import Deferred
from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.data.layouts import Reading
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.extension import Extension

DIGITS = Extension("digits", target="rlinf_tasks.digits:Digits", config="rlinf_tasks.config:DigitsConfig")


@dataclass(frozen=True)
class Length:
    length: int


def digits(length: int = 2) -> Part:
    return Part("digits", extension=DIGITS, settings=Length(length))


def test_an_extension_gets_its_settings_and_the_seed() -> None:
    short, other = (open_dataset(digits(4), seed) for seed in (1, 2))
    assert short.size is None
    assert re.fullmatch(r"d\d{4}=", short.row(0).text or "")
    assert [short.row(i) for i in range(5)] != [other.row(i) for i in range(5)]
    assert short.where(3) == "digits, row 3"


def test_evaluation_draws_other_rows_than_any_training_run() -> None:
    assert {held_out(seed) for seed in range(1000)}.isdisjoint(range(1000))
    assert len({held_out(seed) for seed in range(1000)}) == 1000
    trained, asked = (open_dataset(digits(8), seed) for seed in (0, held_out(0)))
    assert {trained.row(i).text for i in range(50)}.isdisjoint(asked.row(i).text for i in range(50))


def test_a_file_gets_the_keys(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"q": "a", "gold": 1}\n')
    data = open_dataset(Part(str(path)), 0, Reading(prompt_key="q", answer_key="gold"))
    assert isinstance(data, JsonlDataset)
    assert (data.row(0).text, data.row(0).answer) == ("a", "1")


@pytest.mark.parametrize(("name", "message"), [
    ("digit", "data.name=digit is neither a file nor a known data set (digits, sums); did you mean 'digits'"),
    ("squad", "data.name=squad is neither a file nor a known data set (digits, sums)"),
    ("squad.jsonl", "no file squad.jsonl"),
    ("some/squad.parquet", "no file some/squad.parquet: there is no directory some"),
    ("some/squad.csv", "no file some/squad.csv: there is no directory some"),
    ("some/deep/squad", "no file some/deep/squad: there is no directory some/deep"),
    ("here/train", "no file here/train; did you mean 'train.jsonl'"),
])
def test_unknown_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "train.jsonl").touch()
    with pytest.raises(UsageError) as caught:
        open_dataset(Part(name), 0, known=("sums", "digits"))
    assert str(caught.value) == message


def test_the_key_that_names_it_is_told() -> None:
    with pytest.raises(UsageError, match=r"^eval\.data=nothing is neither a file"):
        open_dataset(Part("nothing"), 0, option="eval.data")


def test_a_hub_name_is_not_looked_up_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("openai/gsm8k", "openai/gsm8k:main", "a.b/c-d_e.v1:x.y"):
        data = open_dataset(Part(name), 0)
        assert isinstance(data, Deferred)
        assert not data.opened


def test_a_directory_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with pytest.raises(UsageError, match="data is a directory; name a file in it"):
        open_dataset(Part("data"), 0)


def test_the_fingerprint_of_a_file_is_that_of_its_content(write: Callable[..., Path]) -> None:
    def fingerprint(path: Path) -> str:
        return open_dataset(Part(str(path)), 0).fingerprint()

    first = fingerprint(write({"prompt": "a"}, name="one.jsonl"))
    assert fingerprint(write({"prompt": "a"}, name="two.jsonl")) == first
    assert fingerprint(write({"prompt": "b"}, name="three.jsonl")) != first


def test_the_fingerprint_of_a_generator_is_that_of_how_it_is_made() -> None:
    made = {open_dataset(part, seed).fingerprint() for part in (digits(2), digits(3)) for seed in (0, 1)}
    assert len(made) == 4
    assert open_dataset(digits(3), 1).fingerprint() in made


def test_a_new_version_of_a_generator_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_dataset(digits(), 0).fingerprint()
    monkeypatch.setattr("rlinf_tasks.digits.Digits.row", lambda self, index: json.loads("[]"))
    assert open_dataset(digits(), 0).fingerprint() != before

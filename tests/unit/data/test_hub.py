"""Data sets of the package `datasets`: saved directories, and hub names without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rlinf_cli.data.hub as module
from rlinf_cli.config.schema import Part
from rlinf_cli.data.datasets import open_dataset
from rlinf_cli.data.hub import Deferred, HubDataset, is_hub_name
from rlinf_cli.data.layouts import RECOGNISED, Reading
from rlinf_cli.data.rows import Row
from rlinf_cli.data.sources import Source
from rlinf_cli.errors import PluginError, UsageError

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()


def rows(*texts: str) -> Any:
    return datasets.Dataset.from_list([{"prompt": text, "answer": "1", "extra": {"tags": ["x"], "n": n}}
                                       for n, text in enumerate(texts)])


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rows("a", "b", "c").save_to_disk(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.fixture
def splits(tmp_path: Path) -> Path:
    datasets.DatasetDict(train=rows("a", "b"), test=rows("t")).save_to_disk(tmp_path / "splits")
    return tmp_path / "splits"


def refused(name: str | Path, reading: Reading = RECOGNISED) -> str:
    with pytest.raises(UsageError) as caught:
        open_dataset(Part(str(name)), 0, reading).row(0)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_saved_directory(saved: Path) -> None:
    data = open_dataset(Part(str(saved)), 0)
    assert data.size == 3
    assert data.row(2) == Row(text="c", answer="1", columns={"extra": {"tags": ["x"], "n": 2}})
    assert data.row(0).text == "a"
    assert data.where(1) == f"{saved}, row 1"


def test_a_split_of_a_saved_directory(splits: Path) -> None:
    assert open_dataset(Part(str(splits)), 0).size == 2
    assert open_dataset(Part(str(splits)), 0, Reading(split="test")).row(0).text == "t"
    assert refused(splits, Reading(split="tset")) == (
        f"{splits} has no split 'tset' (it has train, test); did you mean 'test'; see data.split")


def test_rows_are_checked_when_it_is_opened(tmp_path: Path, saved: Path) -> None:
    rows("a", "").save_to_disk(tmp_path / "bad")
    assert refused(tmp_path / "bad") == f"{tmp_path}/bad, row 1: 'prompt' is empty"
    assert refused(saved, Reading(prompt_key="q")).startswith(f"{saved}, row 0: no column 'q'")
    rows("a").filter(lambda row: False).save_to_disk(tmp_path / "none")
    assert refused(tmp_path / "none").endswith("holds no rows")


def test_a_damaged_directory(saved: Path) -> None:
    (saved / "data-00000-of-00001.arrow").unlink()
    assert refused(saved).startswith(f"{saved} is no complete directory of save_to_disk: ")


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path, saved: Path, splits: Path) -> None:
    rows("a", "b", "c").save_to_disk(tmp_path / "copy")
    first, copy = (open_dataset(Part(str(path)), 0).fingerprint() for path in (saved, tmp_path / "copy"))
    assert first == copy
    other = {open_dataset(Part(str(splits)), 0, Reading(split=split)).fingerprint() for split in ("train", "test")}
    assert len(other | {first}) == 3


@pytest.mark.parametrize("name", ["openai/gsm8k", "openai/gsm8k:main", "a/b.c-d"])
def test_hub_names(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize("name", ["gsm8k", "/a/b", "./a/b", "../b", "a/b/c", "a/b:", "a/b:c:d", "a/b c", "~/b"])
def test_no_hub_names(name: str) -> None:
    assert not is_hub_name(name)


def offline(name: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Open it in a process that was told to stay offline and has an empty cache."""
    code = ("import sys\nfrom rlinf_cli.config.schema import Part\nfrom rlinf_cli.data.datasets import open_dataset\n"
            f"data = open_dataset(Part({name!r}), 0)\nassert 'datasets' not in sys.modules\n"
            "from rlinf_cli.errors import UsageError\ntry:\n    data.row(0)\nexcept UsageError as error:\n    print(error)\n")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(home)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


def test_without_a_network_the_command_that_fetches_it_is_told(tmp_path: Path) -> None:
    assert offline("openai/gsm8k:main", tmp_path).stdout == (
        "data set 'openai/gsm8k:main' is not in the Hugging Face cache and cannot be fetched from the hub (Couldn't reach "
        "'openai/gsm8k' on the Hub (OfflineModeIsEnabled)): fetch it where there is a network with: python -c \"import "
        "datasets; datasets.load_dataset('openai/gsm8k', 'main')\"\n")


def test_a_hub_data_set_is_looked_up_once_when_first_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    def load(repository: str, config: str | None, split: str) -> Any:
        asked.append((repository, config, split))
        return rows("a", "b")

    monkeypatch.setattr(datasets, "load_dataset", load)
    source = Source("org/name:sub", Deferred("org/name:sub", Reading(split="test")))
    assert source.deferred
    assert asked == []
    assert (source.size, source.row(1).text, source.where(1)) == (2, "b", "org/name:sub, row 1")
    assert not source.deferred
    assert asked == [("org/name", "sub", "test")]


@pytest.mark.parametrize(("error", "message"), [
    (ValueError("Unknown split \"tset\".\nShould be one of ['train']."),
     "data set 'org/name' with data.split=train cannot be used: Unknown split \"tset\". Should be one of ['train']"),
    (RuntimeError("Dataset scripts are no longer supported, but found name.py"),
     "data set 'org/name' with data.split=train cannot be used: Dataset scripts are no longer supported"),
])
def test_what_the_hub_has_must_fit(monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    def load(*args: Any, **kwargs: Any) -> Any:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert refused("org/name").startswith(message)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    monkeypatch.setattr(module, "is_installed", lambda name: False)
    for name in ("org/name", str(saved)):
        with pytest.raises(PluginError, match=r"needs datasets, not installed here; run: pip install 'rlinf-cli\[hub\]'$"):
            open_dataset(Part(name), 0)


def test_a_selection_keeps_its_order() -> None:
    data = HubDataset("x", rows("a", "b", "c").select([2, 0]), RECOGNISED)
    assert [data.row(i).text for i in range(2)] == ["c", "a"]

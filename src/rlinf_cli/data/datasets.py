"""From `data.name` to a data set: a file, or what a plugin registered."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.data.rows import Dataset
from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.plugins.extension import Extension


def open_dataset(name: str, seed: int, prompt_key: str = "", answer_key: str = "", extension: Extension | None = None,
                 config: Any = None, known: Iterable[str] = ()) -> Dataset:
    """The data set that `data.name` names, ready for use. Raises UsageError when it cannot be.

    `extension`: the registered data set of that name, if there is one, with `config`, an instance of its dataclass;
    without one, `name` is a file. `known`: names of all registered data sets, for advice.
    """
    if extension is None:
        return _open_file(name, prompt_key, answer_key, known)
    if prompt_key or answer_key:
        option = "data.prompt_key" if prompt_key else "data.answer_key"
        raise UsageError(f"{option} names a column of a file, but data.name={name} is a generator; leave it out")
    dataset: Dataset = extension.load()(config, seed)
    return dataset


def _open_file(name: str, prompt_key: str, answer_key: str, known: Iterable[str]) -> Dataset:
    plain = not Path(name).suffix and Path(name).name == name
    if plain and not Path(name).exists():
        names = sorted(known)
        raise UsageError(f"data.name={name} is neither a file nor a known data set ({', '.join(names)})"
                         f"{did_you_mean(name, names)}")
    return JsonlDataset(name, prompt_key, answer_key)

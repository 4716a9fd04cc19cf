"""From a part of `data.name` to a data set: a file, what a plugin registered, or a name on the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rlinf_cli.config.schema import Part
from rlinf_cli.data.digest import text_digest
from rlinf_cli.data.files import ENDINGS, check_file, open_file
from rlinf_cli.data.hub import Deferred, is_hub_name, is_saved, open_saved
from rlinf_cli.data.layouts import RECOGNISED, Reading
from rlinf_cli.data.rows import Dataset, OpenDataset, Row
from rlinf_cli.errors import UsageError, did_you_mean

_OTHER_FILES = (".csv", ".tsv", ".json", ".txt", ".gz", ".zst", ".zip", ".arrow")
"""Endings that no name on the hub is taken to have."""

_IDENTIFYING = 32
"""Rows that tell one version of a plugin's data set from another."""


class PluginDataset:
    """A plugin's data set under the name, settings and seed that it was made with."""

    def __init__(self, name: str, settings: Any, seed: int, dataset: Dataset) -> None:
        self.name, self._made_with, self._dataset = name, f"{settings} {seed}", dataset

    @property
    def size(self) -> int | None:
        return self._dataset.size

    def row(self, index: int) -> Row:
        return self._dataset.row(index)

    def where(self, index: int) -> str:
        return f"{self.name}, row {index}"

    def fingerprint(self) -> str:
        shown = _IDENTIFYING if self.size is None else min(self.size, _IDENTIFYING)
        rows = [repr(self.row(index)) for index in range(shown)]
        return text_digest([self.name, self._made_with, str(self.size), *rows])


def open_dataset(part: Part, seed: int, reading: Reading = RECOGNISED, known: Iterable[str] = (),
                 option: str = "data.name") -> OpenDataset:
    """The data set that a part of `data.name` names, its rows checked; one of the hub is looked up when it is first used.

    `seed` decides the rows of a generator. `known`: names of all registered data sets, for advice. `option`: the key that
    names it. Raises UsageError when it cannot be used, PluginError when a package is missing that reads it.
    """
    if part.extension is not None:
        return PluginDataset(part.name, part.settings, seed, part.extension.load()(part.settings, seed))
    path = Path(part.name).expanduser()
    if path.is_dir() and is_saved(path):
        return open_saved(path, reading)
    if path.exists() or path.suffix.lower() in (*ENDINGS, *_OTHER_FILES):
        return open_file(path, reading)
    if path.name == part.name and not path.suffix:
        names = sorted(known)
        raise UsageError(f"{option}={part.name} is neither a file nor a known data set ({', '.join(names)})"
                         f"{did_you_mean(part.name, names)}")
    if not is_hub_name(part.name) or _is_near(path):
        check_file(path)
    return Deferred(part.name, reading)


def held_out(seed: int) -> int:
    """The seed of a generator's rows for evaluation: that of no training run."""
    return -1 - seed


def _is_near(path: Path) -> bool:
    """Whether a directory beside it has something of nearly that name."""
    return path.parent.is_dir() and bool(did_you_mean(path.name, (entry.name for entry in path.parent.iterdir())))

"""Data sets of the Hugging Face hub, and directories that `save_to_disk` of the package `datasets` wrote.

None of their code is run: `datasets` 5 reads data files only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.data.digest import file_digest, text_digest
from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.rows import Row
from rlinf_cli.data.tables import BATCH, TableDataset
from rlinf_cli.errors import PluginError, UsageError, did_you_mean
from rlinf_cli.plugins.discovery import is_installed

if TYPE_CHECKING:
    from pyarrow import Table

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(:[\w.-]+)?")
_SAVED = ("dataset_dict.json", "state.json")


def is_hub_name(name: str) -> bool:
    """Whether it is written `ORG/NAME` or `ORG/NAME:CONFIG`."""
    return _NAME.fullmatch(name) is not None


def is_saved(directory: Path) -> bool:
    """Whether `save_to_disk` wrote this directory."""
    return any((directory / name).is_file() for name in _SAVED)


class HubDataset(TableDataset):
    """The rows of a `datasets.Dataset`, which stay in the files that it maps into memory."""

    def __init__(self, name: str, data: Any, reading: Reading) -> None:
        super().__init__(name, reading)
        self._data, self._split = data.with_format("arrow"), reading.split
        self._check()

    def fingerprint(self) -> str:
        files = [file_digest(file["filename"]) for file in self._data.cache_files]
        return text_digest([*files, self._split, str(self.size)])

    def _table(self, index: int) -> Table:
        return self._data[index : index + 1]

    def _tables(self) -> Iterator[Table]:
        for start in range(0, len(self._data), BATCH):
            yield self._data[start : start + BATCH]


class Deferred:
    """A hub data set that is looked up when something of it is first asked for: that may take a download."""

    def __init__(self, name: str, reading: Reading) -> None:
        _check_installed(name)
        self.name, self._reading = name, reading

    @property
    def opened(self) -> bool:
        return "_dataset" in self.__dict__

    @property
    def size(self) -> int | None:
        return self._dataset.size

    def row(self, index: int) -> Row:
        return self._dataset.row(index)

    def where(self, index: int) -> str:
        return self._dataset.where(index)

    def fingerprint(self) -> str:
        return self._dataset.fingerprint()

    @cached_property
    def _dataset(self) -> HubDataset:
        return _fetch(self.name, self._reading)


def open_saved(directory: Path, reading: Reading) -> HubDataset:
    """The rows of a directory that `save_to_disk` wrote; of its split `data.split` where it has several."""
    _check_installed(str(directory))
    import datasets

    try:
        data = datasets.load_from_disk(str(directory), keep_in_memory=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"{directory} is no complete directory of save_to_disk: {_line(error)}") from error
    if isinstance(data, datasets.DatasetDict):
        if reading.split not in data:
            raise UsageError(f"{directory} has no split {reading.split!r} (it has {', '.join(data)})"
                             f"{did_you_mean(reading.split, data)}; see data.split")
        data = data[reading.split]
    return HubDataset(str(directory), data, reading)


def _fetch(name: str, reading: Reading) -> HubDataset:
    import datasets

    datasets.disable_progress_bars()
    repository, _, config = name.partition(":")
    try:
        data = datasets.load_dataset(repository, config or None, split=reading.split)
    except (ValueError, RuntimeError) as error:  # no such configuration or split, a script instead of data
        raise UsageError(f"data set '{name}' with data.split={reading.split} cannot be used: {_line(error)}") from error
    except OSError as error:  # not there, gated, or no connection
        asked = f"'{repository}', '{config}'" if config else f"'{repository}'"
        raise UsageError(
            f"data set '{name}' is not in the Hugging Face cache and cannot be fetched from the hub ({_line(error)}): fetch it "
            f"where there is a network with: python -c \"import datasets; datasets.load_dataset({asked})\"") from error
    return HubDataset(name, data, reading)


def _check_installed(name: str) -> None:
    if not is_installed("datasets"):
        raise PluginError(f"reading the data set {name} needs datasets, not installed here; "
                          "run: pip install 'rlinf-cli[hub]'")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")

"""Data files: whether one can be read, and with what."""

from __future__ import annotations

from pathlib import Path

from rlinf_cli.data.jsonl import JsonlDataset
from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.parquet import ParquetDataset
from rlinf_cli.errors import UsageError, did_you_mean

ENDINGS = (".jsonl", ".ndjson", ".parquet")
"""File name endings that are read."""


def open_file(path: Path, reading: Reading) -> JsonlDataset | ParquetDataset:
    """The rows of a file. Raises UsageError when there is none, or a row of it is wrong; PluginError when what reads it
    is not installed."""
    check_file(path)
    return ParquetDataset(path, reading) if path.suffix.lower() == ".parquet" else JsonlDataset(path, reading)


def check_file(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name a file in it{_list(path)}")
    if not path.exists():
        raise UsageError(f"no file {path}{_advice(path)}")
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"cannot read {path}: data is read from {', '.join(ENDINGS[:-1])} and {ENDINGS[-1]} files; "
                         "convert it, for example with pandas: to_json(FILE, orient='records', lines=True)")
    if not path.is_file():
        raise UsageError(f"{path} is not a regular file")
    if not path.stat().st_size:
        raise UsageError(f"{path} is empty; write one row or more")


def _advice(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no directory {path.parent}"
    return did_you_mean(path.name, (entry.name for entry in path.parent.iterdir()))


def _list(directory: Path) -> str:
    names = sorted(entry.name for entry in directory.iterdir() if entry.suffix.lower() in ENDINGS)
    return f": {', '.join(names[:5])}" if names else ""

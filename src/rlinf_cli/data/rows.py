"""What data is made of: rows, and data sets that give any row at any time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(slots=True)
class Row:
    """One row of data. Exactly one of `text` and `messages` is given."""

    text: str | None = None
    messages: list[dict[str, str]] | None = None
    answer: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None
    """The response to learn by supervised training, where the data has one."""


class Dataset(Protocol):
    """Target of a dataset extension, built as `Dataset(config, seed)`; random access makes a resume exact and free."""

    size: int | None
    """Number of rows; None for a generator that never repeats."""

    def row(self, index: int) -> Row:
        """Row number `index`, the same at every call."""
        ...


class OpenDataset(Protocol):
    """A data set that knows where its rows stand and what it is."""

    @property
    def size(self) -> int | None: ...

    def row(self, index: int) -> Row: ...

    def where(self, index: int) -> str:
        """Where row number `index` stands, for messages: `train.jsonl, line 7`."""
        ...

    def fingerprint(self) -> str:
        """The same for the same rows, wherever they are kept."""
        ...

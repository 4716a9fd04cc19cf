"""Rows of Arrow tables: what Parquet files and hub data sets have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rlinf_cli.data.layouts import Reading
from rlinf_cli.data.records import RecordReader
from rlinf_cli.data.rows import Row
from rlinf_cli.errors import UsageError

if TYPE_CHECKING:
    from pyarrow import Table

BATCH = 1024
"""Rows that are Python objects at once while all are checked."""


class TableDataset(ABC):
    """Rows of tables, layouts as described in `docs/data.md`; every row is checked once, by `_check`.

    Nested values become plain Python: lists, dicts, text, numbers.
    """

    size: int

    def __init__(self, name: str, reading: Reading) -> None:
        self.name = name
        self._reader = RecordReader(reading)

    def row(self, index: int) -> Row:
        """Row number `index`, counted from 0."""
        record: dict[str, Any] = self._table(index).to_pylist()[0]
        return self._reader.row(record, self.where(index))

    def where(self, index: int) -> str:
        return f"{self.name}, row {index}"

    @abstractmethod
    def fingerprint(self) -> str: ...

    @abstractmethod
    def _table(self, index: int) -> Table:
        """A table of row number `index` alone."""

    @abstractmethod
    def _tables(self) -> Iterator[Table]:
        """All rows in their order, in tables of about `BATCH` rows."""

    def _check(self) -> None:
        """Read every row; UsageError at the first that does not fit, and when there is none."""
        self.size = 0
        for table in self._tables():
            for record in table.to_pylist():
                self._reader.row(record, self.where(self.size))
                self.size += 1
        if not self.size:
            raise UsageError(f"{self.name} holds no rows")

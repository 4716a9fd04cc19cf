"""Parquet files, read a row group at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.data.digest import file_digest
from rlinf_cli.data.layouts import RECOGNISED, Reading
from rlinf_cli.data.tables import BATCH, TableDataset
from rlinf_cli.errors import PluginError, UsageError

if TYPE_CHECKING:
    from pyarrow import Table

HELD = 512 << 20
"""Bytes of row groups that are kept in memory; the one in use is kept whatever its size."""


class ParquetDataset(TableDataset):
    """The rows of a Parquet file; it must not change while it is in use."""

    def __init__(self, path: Path, reading: Reading = RECOGNISED) -> None:
        super().__init__(str(path), reading)
        self._file = _open(path)
        metadata = self._file.metadata
        rows = (metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))
        self._starts = [0, *accumulate(rows)]
        """First row of each group, and the number of rows."""
        self._groups: OrderedDict[int, Table] = OrderedDict()
        self._check()

    def fingerprint(self) -> str:
        return file_digest(self.name)

    def _table(self, index: int) -> Table:
        group = bisect_right(self._starts, index) - 1
        return self._group(group).slice(index - self._starts[group], 1)

    def _tables(self) -> Iterator[Table]:
        for number in range(len(self._starts) - 1):
            group = self._group(number)
            for start in range(0, len(group), BATCH):
                yield group.slice(start, BATCH)

    def _group(self, number: int) -> Table:
        if number not in self._groups:
            self._groups[number] = self._read(number)
            while len(self._groups) > 1 and sum(table.nbytes for table in self._groups.values()) > HELD:
                self._groups.popitem(last=False)
        self._groups.move_to_end(number)
        return self._groups[number]

    def _read(self, number: int) -> Table:
        import pyarrow

        try:
            return self._file.read_row_group(number, use_threads=False)
        except (OSError, pyarrow.ArrowException) as error:
            raise UsageError(f"cannot read row {self._starts[number]} and those after it of {self.name}: "
                             f"{_line(error)}; write or fetch the file again") from error


def _open(path: Path) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise PluginError(f"reading {path} needs pyarrow, not installed here; run: pip install 'rlinf-cli[parquet]'") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except PermissionError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{path} is no complete Parquet file ({_line(error)}); write or fetch it again") from error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()).rstrip(".")

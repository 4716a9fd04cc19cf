"""From the records of a file to rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlinf_cli.data.layouts import Layout, LayoutError, Reading, recognise
from rlinf_cli.data.rows import Row
from rlinf_cli.errors import UsageError


class RecordReader:
    """Reads every record in the layout of the first one that it is given."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._layout: Layout | None = None

    def row(self, record: Mapping[str, Any], where: str) -> Row:
        """The row; UsageError, which begins with `where` the record stands, when it does not fit."""
        try:
            if self._layout is None:
                self._layout = recognise(record, self._reading)
            return self._layout.row(record)
        except LayoutError as error:
            raise UsageError(f"{where}: {error}") from error

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def fixtures() -> Path:
    """The directory of small data files."""
    return REPOSITORY / "tests" / "data"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of rows (objects become JSON, text and bytes stay as they are) and return its path."""

    def write(*rows: Any, name: str = "rows.jsonl", end: bytes = b"\n", start: bytes = b"") -> Path:
        path = tmp_path / name
        path.write_bytes(start + b"".join(line(row) + end for row in rows))
        return path

    def line(row: Any) -> bytes:
        if isinstance(row, bytes):
            return row
        return (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)).encode()

    return write

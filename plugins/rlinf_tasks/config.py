"""Configuration keys of the built-in tasks."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key


@dataclass(frozen=True)
class DigitsConfig:
    """Keys of the data set `digits`."""

    length: int = key(2, ge=1, le=8)
    """Digits of the number."""

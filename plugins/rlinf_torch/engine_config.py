"""Configuration keys of the `torch` engine."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key


@dataclass(frozen=True)
class TorchEngineConfig:
    """Generation in the worker's own process."""

    slots: int = key(128, ge=1)
    """Most responses that are generated at the same time; memory is taken as they are needed."""
    dtype: str = key("float32", choices=("float32", "bfloat16"))
    """Type of the weights and of the key-value cache."""

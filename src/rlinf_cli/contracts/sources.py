"""Where models, data and rewards come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rlinf_cli.rl.trajectory import Sample


@dataclass(slots=True)
class Row:
    """One row of data. Exactly one of `text` and `messages` is given."""

    text: str | None = None
    messages: list[dict[str, str]] | None = None
    answer: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


class Dataset(Protocol):
    """Target of a dataset extension, built as `Dataset(config, seed)`; random access makes a resume exact and free."""

    size: int | None
    """Number of rows; None for a generator that never repeats."""

    def row(self, index: int) -> Row:
        """Row number `index`, the same at every call."""
        ...


class ModelSource(Protocol):
    """Target of a model extension, built as `ModelSource(variant, seed)`: `model.name=NAME:VARIANT`.

    The constructor is light and raises `UsageError` naming the known variants when `variant` is none of them.
    """

    def key(self) -> str:
        """Directory name in the cache: everything that decides the content (variant, seed if used, format version)."""
        ...

    def build(self, directory: Path) -> None:
        """Write a Hugging Face directory (config, safetensors, tokenizer) into an existing empty directory."""
        ...


class Reward(Protocol):
    """Target of a reward extension, built as `Reward(config)`."""

    def score(self, sample: Sample) -> float | Mapping[str, float]:
        """Reward of one sample; several named values have `reward` among them, which is what is trained on.

        May raise: the sample is then left out of training and counted under `reward/errors`.
        """
        ...

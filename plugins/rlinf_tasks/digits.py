"""The task "last digit": the prompt is `d47=`, the answer `7`."""

from __future__ import annotations

import hashlib

from rlinf_cli.api import Row
from rlinf_tasks.config import DigitsConfig


class Digits:
    """An endless data set of numbers drawn uniformly, leading zeros kept; a row is a function of (seed, index)."""

    size: int | None = None

    def __init__(self, config: DigitsConfig, seed: int) -> None:
        self._length, self._seed = config.length, seed

    def row(self, index: int) -> Row:
        digest = hashlib.blake2b(f"digits {self._seed} {index}".encode(), digest_size=8).digest()
        number = f"{int.from_bytes(digest, 'little') % 10**self._length:0{self._length}d}"
        return Row(text=f"d{number}=", answer=number[-1])

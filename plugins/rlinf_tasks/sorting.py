"""The task "sort": the prompt is `s4213=`, the answer `1234`."""

from __future__ import annotations

from rlinf_cli.api import Row
from rlinf_tasks.config import SortingConfig
from rlinf_tasks.draw import Draw


class Sorting:
    """An endless data set of strings of digits, each drawn uniformly; a row is a function of (seed, index)."""

    size: int | None = None

    def __init__(self, config: SortingConfig, seed: int) -> None:
        self._length, self._seed = config.length, seed

    def row(self, index: int) -> Row:
        number = Draw("sorting", self._seed, index).between(0, 10**self._length - 1)
        digits = f"{number:0{self._length}d}"
        return Row(text=f"s{digits}=", answer="".join(sorted(digits)))

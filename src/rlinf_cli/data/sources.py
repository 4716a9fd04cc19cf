"""The sources of a run's rows: one data set, or several with weights, each row dressed as the configuration says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rlinf_cli.config.schema import Part
from rlinf_cli.data.datasets import open_dataset
from rlinf_cli.data.digest import text_digest
from rlinf_cli.data.hub import Deferred
from rlinf_cli.data.layouts import RECOGNISED, Reading
from rlinf_cli.data.rows import OpenDataset, Row
from rlinf_cli.errors import UsageError

SOURCE_COLUMN = "data_source"
"""Column that tells from which data set of several a row is, unless the data has one of that name."""


@dataclass(frozen=True)
class Source:
    """A data set as a run uses it. Its rows are counted among those that are `kept`."""

    name: str
    dataset: OpenDataset
    weight: float = 1.0
    """Its share of the rows that the run takes, relative to the other sources'."""
    system_prompt: str = ""
    supervised: bool = False
    marked: bool = False
    """Rows get the source's name in the column `data_source`."""
    kept: Sequence[int] | None = None
    """Row numbers of the data set that are used; None: all."""

    @property
    def deferred(self) -> bool:
        """Whether it has not been looked up yet, which may take a download."""
        return isinstance(self.dataset, Deferred) and not self.dataset.opened

    @property
    def size(self) -> int | None:
        return self.dataset.size if self.kept is None else len(self.kept)

    def number(self, index: int) -> int:
        """The number in the data set of the row that is `index` here."""
        return index if self.kept is None else self.kept[index]

    def row(self, index: int) -> Row:
        row = self.dataset.row(self.number(index))
        if self.system_prompt:
            row = with_system_prompt(row, self.system_prompt)
        if self.supervised and row.target is None:
            row = replace(row, target=self._answer(row, index))
        if self.marked and SOURCE_COLUMN not in row.columns:
            row = replace(row, columns={**row.columns, SOURCE_COLUMN: self.name})
        return row

    def where(self, index: int) -> str:
        """Where row `index` stands, for messages."""
        return self.dataset.where(self.number(index))

    def _answer(self, row: Row, index: int) -> str:
        if row.answer is None:
            raise UsageError(f"{self.where(index)}: there is no response to learn, neither a target nor an answer")
        return row.answer


def open_sources(parts: Sequence[Part], seed: int, reading: Reading = RECOGNISED, system_prompt: str = "",
                 known: Iterable[str] = (), option: str = "data.name") -> tuple[Source, ...]:
    """The sources that the parts of `data.name` (or of another `option`) name. Raises as `open_dataset` does."""
    several = len(parts) > 1
    if option == "data.name" and all(part.extension for part in parts):
        _refuse_columns(reading, " + ".join(part.name for part in parts))
    return tuple(Source(part.name, open_dataset(part, seed, reading, known, option), part.weight, system_prompt,
                        reading.supervised, several) for part in parts)


def _refuse_columns(reading: Reading, name: str) -> None:
    for key in ("prompt_key", "answer_key", "target_key"):
        if getattr(reading, key):
            raise UsageError(f"data.{key} names a column of a file, but data.name={name} is a generator; leave it out")


def fingerprint(sources: Sequence[Source]) -> str:
    """What the rows are and how they are mixed: the same for the same contents, settings, seed and weights, wherever the
    files are. Reads the files."""
    parts = [part for source in sources for part in (source.dataset.fingerprint(), str(source.weight))]
    return text_digest(parts)


def with_system_prompt(row: Row, prompt: str) -> Row:
    """The row with this system message before all others, in place of its own if it has one; text becomes the user's."""
    messages = row.messages if row.messages is not None else [{"role": "user", "content": row.text or ""}]
    others = messages[1:] if messages[0]["role"] in ("system", "developer") else messages
    return replace(row, text=None, messages=[{"role": "system", "content": prompt}, *others])

"""Documents from files, and the passages that they are cut into."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_cli.api import UsageError

SUFFIXES = (".jsonl", ".md", ".markdown", ".txt")

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*")
_FENCE = re.compile(r"\s*(```|~~~)")
_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+")


@dataclass(frozen=True, slots=True)
class Document:
    """What a page shows. `id` is unique within a corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document, which a search finds. `title`: the document's, and the sections that it is in."""

    document: str
    title: str
    text: str


def read_documents(paths: Sequence[Path]) -> Iterator[Document]:
    """Those of all files, directories searched through in the order of names. Raises UsageError, naming file and line."""
    ids: dict[str, str] = {}
    for path in _files(paths):
        for where, document in _documents(path):
            if document.id in ids:
                raise UsageError(f"{where}: the id {document.id!r} is already that of {ids[document.id]}; ids are unique")
            ids[document.id] = where
            yield document


def passages(documents: Iterable[Document], words: int, overlap: int = 0) -> Iterator[Passage]:
    """Each document in passages of at most `words` words, cut between sentences where that can be; each begins with the last
    sentences of the one before that have at most `overlap` words together."""
    for document in documents:
        for title, text in _sections(document):
            for piece in cut(text, words, overlap):
                yield Passage(document.id, title, piece)


def cut(text: str, words: int, overlap: int = 0) -> Iterator[str]:
    """A text in pieces, see `passages`."""
    taken: list[str] = []
    count = fresh = 0
    for sentence in _sentences(text, words):
        size = len(sentence.split())
        if fresh and count + size > words:
            yield " ".join(taken)
            taken = _last(taken, min(overlap, words - size))
            count, fresh = sum(len(one.split()) for one in taken), 0
        taken.append(sentence)
        count, fresh = count + size, fresh + 1
    if fresh:
        yield " ".join(taken)


def _last(sentences: Sequence[str], words: int) -> list[str]:
    """As many of the last ones as have no more words than that together."""
    kept: list[str] = []
    for sentence in reversed(sentences):
        words -= len(sentence.split())
        if words < 0:
            break
        kept.insert(0, sentence)
    return kept


def _sentences(text: str, words: int) -> Iterator[str]:
    """Without line ends; longer ones in pieces of so many words."""
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in _SENTENCE_END.split(" ".join(paragraph.split())):
            said = sentence.split()
            for start in range(0, len(said), words):
                yield " ".join(said[start : start + words])


def _sections(document: Document) -> Iterator[tuple[str, str]]:
    """A document's parts under their headings (Markdown's), each with the headings that it stands under."""
    headings: list[tuple[int, str]] = []
    lines: list[str] = []
    is_code = False
    for line in document.text.splitlines():
        is_code ^= _FENCE.match(line) is not None
        heading = None if is_code else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        yield _titled(document.title, headings), "\n".join(lines)
        lines, level = [], len(heading[1])
        headings = [*[one for one in headings if one[0] < level], (level, heading[2])]
    yield _titled(document.title, headings), "\n".join(lines)


def _titled(title: str, headings: Sequence[tuple[int, str]]) -> str:
    return " > ".join(dict.fromkeys([title, *[text for _, text in headings]]))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = [one for one in sorted(path.rglob("*")) if one.suffix in SUFFIXES and one.is_file()]
            if not found:
                raise UsageError(f"the directory {path} has no file that ends in {', '.join(SUFFIXES)}")
            yield from found
        elif not path.is_file():
            raise UsageError(f"there is no file {path}")
        elif path.suffix not in SUFFIXES:
            raise UsageError(f"{path}: documents are read from files that end in {', '.join(SUFFIXES)}")
        else:
            yield path


def _documents(path: Path) -> Iterator[tuple[str, Document]]:
    """Each with where it stands."""
    try:
        if path.suffix == ".jsonl":
            yield from _rows(path)
            return
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    first = next((heading[2] for heading in map(_HEADING.fullmatch, text.splitlines()) if heading), "")
    yield str(path), Document(str(path), first if path.suffix != ".txt" and first else path.stem, text)


def _rows(path: Path) -> Iterator[tuple[str, Document]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                where = f"{path}, line {number}"
                yield where, _row(_parsed(line, where), where, f"{path.stem}-{number}")


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where} is no JSON object")
    return row


def _row(row: dict[str, Any], where: str, otherwise: str) -> Document:
    """`text`, and `title` and `id` where there are such; or Search-R1's `contents`, whose first line is the title in quotes."""
    title, text = row.get("title", ""), row.get("text")
    if text is None and isinstance(row.get("contents"), str):
        title, _, text = row["contents"].partition("\n")
        title = title.strip().strip('"')
    if not isinstance(text, str) or not isinstance(title, str):
        raise UsageError(f"{where}: a document has `text`, and may have `title` and `id`, all of them texts (or Search-R1's "
                         f"`contents`); here are {', '.join(map(repr, row)) or 'no names'}")
    return Document(str(row.get("id", otherwise)), title, text)

"""An index: a directory with a corpus and what its passages are found by. It is made in one go and never changed.

    index.json       what it is
    corpus.sqlite    documents and passages, and the words of `fts5`
    bm25s/, vectors.npy    of the other back ends
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlinf_cli.api import UsageError
from rlinf_search.config import WORDS
from rlinf_search.documents import Document, passages
from rlinf_search.finders import Bm25sFinder, DenseFinder, Encoder, Finder, FtsFinder, SentenceEncoder

FORMAT = 1
FACTS, CORPUS = "index.json", "corpus.sqlite"


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that was found. `document` is its page's id."""

    document: str
    title: str
    text: str
    score: float


@dataclass(frozen=True)
class Facts:
    """What is known of an index. `encoder`: the model of `dense`, else empty."""

    format: int
    backend: str
    documents: int
    passages: int
    words: int
    overlap: int
    encoder: str


class Index:
    """An index that is there. Several threads may ask at once. Raises UsageError where it is none, or is damaged."""

    def __init__(self, directory: Path, load_encoder: Callable[[str], Encoder] = SentenceEncoder) -> None:
        self.directory, self.facts = directory, read_facts(directory)
        self._local = threading.local()
        self._finder = self._open(load_encoder)

    def search(self, queries: Sequence[str], count: int) -> list[list[Hit]]:
        """The best passages for each query, the best first."""
        return [[self._hit(number, score) for number, score in found] for found in self._finder.find(queries, count)]

    def page(self, name: str) -> Document | None:
        """The document of that id or, failing that, title."""
        for column in ("id", "title"):
            row = self._connect().execute(f"SELECT id, title, text FROM documents WHERE {column} = ? ORDER BY number LIMIT 1",
                                          (name,)).fetchone()
            if row is not None:
                return Document(*row)
        return None

    def _open(self, load_encoder: Callable[[str], Encoder]) -> Finder:
        if self.facts.backend == "fts5":
            return FtsFinder(self._connect)
        if self.facts.backend == "bm25s":
            return Bm25sFinder(self.directory)
        return DenseFinder(self.directory, load_encoder(self.facts.encoder))

    def _hit(self, number: int, score: float) -> Hit:
        found = self._connect().execute("SELECT document, title, text FROM passages WHERE number = ?", (number,))
        document, title, text = found.fetchone()
        return Hit(document, title, text, score)

    def _connect(self) -> sqlite3.Connection:
        """One a thread."""
        if not hasattr(self._local, "corpus"):
            self._local.corpus = sqlite3.connect(f"file:{self.directory / CORPUS}?mode=ro&immutable=1", uri=True)
        corpus: sqlite3.Connection = self._local.corpus
        return corpus


def build_index(documents: Iterable[Document], out: Path, backend: str = "fts5", words: int = WORDS, overlap: int = 0,
                encoder: str = "", load_encoder: Callable[[str], Encoder] = SentenceEncoder) -> Facts:
    """Make the directory `out`, which must not be there, or be an index, which is then replaced. Raises UsageError."""
    if out.exists() and not (out / FACTS).is_file():
        raise UsageError(f"{out} is there and is no index: name another directory")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        made = Path(scratch, "index")
        made.mkdir()
        facts = _build(documents, made, backend, words, overlap, encoder, load_encoder)
        (made / FACTS).write_text(json.dumps(asdict(facts), indent=1), encoding="utf-8")
        if out.exists():
            out.rename(Path(scratch, "before"))
        made.rename(out)
    return facts


def read_facts(directory: Path) -> Facts:
    """Raises UsageError."""
    try:
        facts = Facts(**json.loads((directory / FACTS).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise UsageError(f"{directory} is no index of a corpus: make one with rlinf corpus build FILES --out "
                         f"{directory}") from error
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"{directory / FACTS} is damaged ({error}): build the index again") from error
    if facts.format != FORMAT or not (directory / CORPUS).is_file():
        raise UsageError(f"{directory} is an index of another format, or lacks {CORPUS}: build it again")
    return facts


def _build(documents: Iterable[Document], made: Path, backend: str, words: int, overlap: int, encoder: str,
           load_encoder: Callable[[str], Encoder]) -> Facts:
    corpus = sqlite3.connect(made / CORPUS)
    try:
        counts = _store(corpus, documents, words, overlap)
        if backend == "fts5":
            FtsFinder.build(corpus)
        corpus.commit()
        texts = [f"{title}\n{text}" for title, text in corpus.execute("SELECT title, text FROM passages ORDER BY number")]
    finally:
        corpus.close()
    if backend == "bm25s":
        Bm25sFinder.build(texts, made)
    if backend == "dense":
        DenseFinder.build(texts, made, load_encoder(encoder))
    return Facts(FORMAT, backend, *counts, words, overlap, encoder if backend == "dense" else "")


def _store(corpus: sqlite3.Connection, documents: Iterable[Document], words: int, overlap: int) -> tuple[int, int]:
    """How many documents and passages there are. Raises UsageError when there is nothing to find."""
    corpus.execute("CREATE TABLE documents (number INTEGER PRIMARY KEY, id TEXT UNIQUE, title TEXT, text TEXT)")
    corpus.execute("CREATE TABLE passages (number INTEGER PRIMARY KEY, document TEXT, title TEXT, text TEXT)")
    for document in documents:
        corpus.execute("INSERT INTO documents(id, title, text) VALUES (?, ?, ?)", (document.id, document.title, document.text))
        corpus.executemany("INSERT INTO passages(document, title, text) VALUES (?, ?, ?)",
                           ((one.document, one.title, one.text) for one in passages([document], words, overlap)))
    corpus.execute("CREATE INDEX titles ON documents(title)")
    (documents_count,), (passages_count,) = (corpus.execute(f"SELECT count(*) FROM {table}").fetchone()
                                             for table in ("documents", "passages"))
    if not passages_count:
        raise UsageError("there is no text in these files")
    return documents_count, passages_count



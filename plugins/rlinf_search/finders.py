"""How passages are found: by words in SQLite (`fts5`), by words in memory (`bm25s`), or by meaning (`dense`).

Each back end numbers passages as the index does, from 1 on. Scores are greater for better passages and are only comparable within
one back end; equal ones come in the order of the corpus.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.api import PluginError, UsageError

if TYPE_CHECKING:
    import bm25s

Found = list[tuple[int, float]]
"""Numbers of passages and their scores, the best first."""

TITLE_WEIGHT = 2.0
"""Of a word in a title, to one in the text (`fts5`)."""

_WORD = re.compile(r"\w+")


class Finder(Protocol):
    """A back end over an index that is there. Several threads may ask at once."""

    def find(self, queries: Sequence[str], count: int) -> list[Found]:
        """The best passages for each query, at most `count`."""
        ...


class FtsFinder:
    """BM25 of SQLite's FTS5: on the disk, nothing to load."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect

    @staticmethod
    def build(corpus: sqlite3.Connection) -> None:
        corpus.execute("CREATE VIRTUAL TABLE words USING fts5(title, text, content='passages', content_rowid='number', "
                       "tokenize='porter unicode61 remove_diacritics 2')")
        corpus.execute("INSERT INTO words(words) VALUES ('rebuild')")
        corpus.execute("INSERT INTO words(words) VALUES ('optimize')")

    def find(self, queries: Sequence[str], count: int) -> list[Found]:
        return [self._one(query, count) for query in queries]

    def _one(self, query: str, count: int) -> Found:
        words = dict.fromkeys(_WORD.findall(query))
        if not words:
            return []
        said = " OR ".join(f'"{word}"' for word in words)  # quoted: a word of FTS5's own language is a word
        rows = self._connect().execute(
            "SELECT rowid, -bm25(words, ?, 1.0) AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?",
            (TITLE_WEIGHT, said, count))
        return [(int(number), float(score)) for number, score in rows]


class Bm25sFinder:
    """BM25 of the library bm25s: a matrix in memory, without stemming."""

    DIRECTORY = "bm25s"

    def __init__(self, directory: Path) -> None:
        self._words: bm25s.BM25 = _bm25s().BM25.load(str(directory / self.DIRECTORY), mmap=True)

    @classmethod
    def build(cls, texts: Sequence[str], directory: Path) -> None:
        library = _bm25s()
        words = library.BM25()
        words.index(library.tokenize(list(texts), stopwords=[], show_progress=False), show_progress=False)
        words.save(str(directory / cls.DIRECTORY))

    def find(self, queries: Sequence[str], count: int) -> list[Found]:
        total = int(self._words.scores["num_docs"])
        return [self._one(query, min(count, total)) for query in queries]

    def _one(self, query: str, count: int) -> Found:
        (words,) = _bm25s().tokenize([query], stopwords=[], return_ids=False, show_progress=False)
        if not words:
            return []
        scores = self._words.get_scores(words)
        return [(number + 1, score) for number, score in _best(scores, count) if score > 0]


class Encoder(Protocol):
    """What makes vectors of texts."""

    def encode(self, texts: Sequence[str], is_query: bool) -> NDArray[np.float32]:
        """[N, D], each of length 1."""
        ...


class SentenceEncoder:
    """A model of sentence-transformers, from a directory or the hub."""

    def __init__(self, model: str) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise PluginError("dense retrieval needs sentence-transformers: pip install 'rlinf-cli[dense]'") from error
        try:
            self._model = SentenceTransformer(model, device="cpu")
        except (OSError, ValueError) as error:
            raise UsageError(f"{model!r} is no model of sentence-transformers: {error}") from error

    def encode(self, texts: Sequence[str], is_query: bool) -> NDArray[np.float32]:
        encode = self._model.encode_query if is_query else self._model.encode_document
        vectors: Any = encode(list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32)


class DenseFinder:
    """The nearest of all vectors, compared one by one: exact, and some ms a query for 100,000 passages."""

    FILE = "vectors.npy"

    def __init__(self, directory: Path, encoder: Encoder) -> None:
        self._vectors, self._encoder = np.load(directory / self.FILE, mmap_mode="r"), encoder

    @classmethod
    def build(cls, texts: Sequence[str], directory: Path, encoder: Encoder) -> None:
        np.save(directory / cls.FILE, encoder.encode(texts, is_query=False))

    def find(self, queries: Sequence[str], count: int) -> list[Found]:
        if not queries:
            return []
        scores = self._encoder.encode(queries, is_query=True) @ self._vectors.T
        return [[(number + 1, score) for number, score in _best(row, count)] for row in scores]


def _best(scores: NDArray[Any], count: int) -> list[tuple[int, float]]:
    """Places of the greatest, equal ones in their order."""
    return [(int(place), float(scores[place])) for place in np.argsort(-scores, kind="stable")[:count]]


def _bm25s() -> Any:
    try:
        import bm25s
    except ImportError as error:
        raise PluginError("the back end bm25s needs a package: pip install 'rlinf-cli[bm25s]'") from error
    return bm25s

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rlinf_cli.errors import UsageError
from rlinf_search.documents import Document
from rlinf_search.index import Index, build_index, read_facts
from rlinf_search.world import World

PAGES = [Document("h", "Holm", "Holm is a town on the river Vessa. It is known for its bells."),
         Document("v", "Vessa", "The Vessa is a river. It flows through Holm."),
         Document("m", "Mara Voss", "Mara Voss is a painter. She lives in Holm."),
         Document("h2", "Holm", "Another page.")]


@pytest.fixture
def index(tmp_path):
    build_index(PAGES, tmp_path / "index")
    return Index(tmp_path / "index")


def titles(index, query, count=3):
    (hits,) = index.search([query], count)
    return [hit.title for hit in hits]


def test_the_best_passages_come_first(index):
    assert titles(index, "Who is the painter Mara Voss?")[0] == "Mara Voss"
    assert titles(index, "bells")[0] == "Holm"
    (hits,) = index.search(["river"], 3)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert (hits[0].document, hits[0].text[:9]) == ("v", "The Vessa")


def test_words_have_stems_and_no_accents(index):
    assert titles(index, "PAINTERS")[:1] == ["Mara Voss"]
    assert titles(index, "Voß Véssa")[:1] == ["Vessa"]


@pytest.mark.parametrize("query", ['"', "NOT AND OR NEAR(", "* : ^ -", "", "title:Holm", "Mara OR"])
def test_what_is_a_language_to_others_is_words_here(index, query):
    titles(index, query)


def test_nothing_is_found_where_no_word_fits(index):
    assert titles(index, "zebra") == []


def test_a_page_is_found_by_its_id_or_title(index):
    assert index.page("v").title == "Vessa"
    assert index.page("Holm").id == "h"
    assert index.page("holm?") is None


def test_threads_search_at_once(index):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: titles(index, "painter"), range(64)))
    assert found == [["Mara Voss"]] * 64


def test_it_is_made_whole_or_not_at_all(tmp_path):
    def documents():
        yield PAGES[0]
        raise UsageError("line 2 is no JSON")

    with pytest.raises(UsageError):
        build_index(documents(), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_replaced_and_nothing_else(tmp_path):
    facts = build_index(PAGES, tmp_path / "index", words=4)
    assert (facts.documents, facts.words) == (4, 4)
    assert facts.passages > 4
    assert build_index(PAGES[:1], tmp_path / "index") == read_facts(tmp_path / "index")
    assert [path.name for path in tmp_path.iterdir()] == ["index"]
    (tmp_path / "else").mkdir()
    with pytest.raises(UsageError, match="is there and is no index"):
        build_index(PAGES, tmp_path / "else")


def test_what_is_none_or_damaged_is_told(tmp_path, index):
    with pytest.raises(UsageError, match="is no index of a corpus: make one with rlinf corpus build"):
        Index(tmp_path / "none")
    facts = tmp_path / "index/index.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "format": 2}))
    with pytest.raises(UsageError, match="of another format"):
        Index(tmp_path / "index")
    facts.write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        Index(tmp_path / "index")


def test_files_without_text_make_no_index(tmp_path):
    with pytest.raises(UsageError, match="there is no text"):
        build_index([Document("a", "A", " ")], tmp_path / "index")


class Letters:
    """Vectors of how often each letter occurs."""

    def __init__(self, model=""):
        self.asked = []

    def encode(self, texts, is_query):
        self.asked.append(is_query)
        counts = np.array([[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts], np.float32)
        return counts / np.maximum(1e-6, np.linalg.norm(counts, axis=1, keepdims=True))


def test_dense_search_finds_the_nearest_vectors(tmp_path):
    facts = build_index(PAGES, tmp_path / "index", "dense", encoder="letters", load_encoder=Letters)
    assert facts.encoder == "letters"
    index = Index(tmp_path / "index", Letters)
    assert titles(index, PAGES[2].title + "\n" + PAGES[2].text)[0] == "Mara Voss"
    assert index.search([], 3) == []


def test_bm25s_finds_what_fts5_finds(tmp_path):
    pytest.importorskip("bm25s", reason="bm25s is an extra")
    world = World(60, 0)
    for backend in ("fts5", "bm25s"):
        build_index(world.documents, tmp_path / backend, backend)
    fts, other = Index(tmp_path / "fts5"), Index(tmp_path / "bm25s")
    for question in world.questions[1][:60]:
        assert titles(other, question.pages[0], 1) == titles(fts, question.pages[0], 1) == [question.pages[0]]
    assert titles(other, "zebra") == []
    assert len(titles(other, "river", 1000)) < 100

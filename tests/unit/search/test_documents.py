import pytest

from rlinf_cli.errors import UsageError
from rlinf_search.documents import Document, Passage, cut, passages, read_documents


def test_passages_end_with_sentences_where_they_can():
    text = "One two three. Four five six? Seven eight. Nine ten eleven twelve."
    assert list(cut(text, 6)) == ["One two three. Four five six?", "Seven eight. Nine ten eleven twelve."]


def test_a_sentence_that_is_longer_is_cut():
    assert list(cut("a b c d e f g", 3)) == ["a b c", "d e f", "g"]


def test_passages_repeat_whole_sentences_of_the_one_before():
    text = "A b. C d. E f. G h."
    assert list(cut(text, 4, overlap=2)) == ["A b. C d.", "C d. E f.", "E f. G h."]


@pytest.mark.parametrize(("text", "overlap"), [("", 0), ("  \n\n ", 0), ("", 3)])
def test_nothing_makes_no_passage(text, overlap):
    assert list(cut(text, 4, overlap)) == []


@pytest.mark.parametrize("overlap", range(5))
def test_every_word_is_in_a_passage_and_none_is_longer(overlap):
    words = [f"w{number}" for number in range(97)]
    text = " ".join(f"{word}." if place % 3 == 2 else word for place, word in enumerate(words))
    found = list(cut(text, 5, overlap))
    assert all(len(one.split()) <= 5 for one in found)
    assert list(dict.fromkeys(" ".join(found).replace(".", "").split())) == words


def test_sections_of_markdown_are_passages_under_their_headings():
    text = "Before.\n# Rivers\nThe Vessa.\n## Length\n9 km.\n```\n# no heading\n```\n# Towns\nHolm."
    found = list(passages([Document("a", "Guide", text)], 20))
    assert [(one.title, one.text) for one in found] == [
        ("Guide", "Before."), ("Guide > Rivers", "The Vessa."), ("Guide > Rivers > Length", "9 km. ``` # no heading ```"),
        ("Guide > Towns", "Holm.")]
    assert found[0] == Passage("a", "Guide", "Before.")


def test_files_of_all_kinds_are_read(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 7, "title": "T", "text": "x"}\n\n'
                                     '{"contents": "\\"Holm\\"\\nA town."}\n{"text": "y"}\n')
    (tmp_path / "b.md").write_text("# Head\nbody")
    (tmp_path / "c.txt").write_text("# plain")
    (tmp_path / "ignored.bin").write_text("")
    found = [(one.id, one.title, one.text) for one in read_documents([tmp_path])]
    assert found[:3] == [("7", "T", "x"), ("a-3", "Holm", "A town."), ("a-4", "", "y")]
    assert [one[1:] for one in found[3:]] == [("Head", "# Head\nbody"), ("c", "# plain")]


@pytest.mark.parametrize(("line", "told"), [
    ("{", "a.jsonl, line 2 is no JSON"), ("[]", "line 2 is no JSON object"), ('{"body": "x"}', "line 2: a document has `text`"),
    ('{"text": 3}', "a document has `text`"), ('{"id": "a", "text": "again"}', "line 2: the id 'a' is already that of")])
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, line, told):
    (tmp_path / "a.jsonl").write_text(f'{{"id": "a", "text": "x"}}\n{line}\n')
    with pytest.raises(UsageError, match=told):
        list(read_documents([tmp_path / "a.jsonl"]))


def test_files_that_are_not_there_or_of_another_kind_are_told(tmp_path):
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe\xfa")
    for path, told in [("none.txt", "there is no file"), ("a.pdf", "end in .jsonl, .md"), ("bad.txt", "cannot read")]:
        with pytest.raises(UsageError, match=told):
            list(read_documents([tmp_path / path]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="has no file that ends in"):
        list(read_documents([tmp_path / "empty"]))

import pytest

from rlinf_search.config import QuestionsConfig
from rlinf_search.questions import INSTRUCTION, Questions
from rlinf_search.world import World

WORLD = World(80, 3)


def test_a_world_is_a_function_of_its_seed():
    assert World(80, 3).documents == WORLD.documents
    assert World(80, 4).documents != WORLD.documents


def test_pages_have_titles_of_their_own():
    titles = [page.title for page in WORLD.documents]
    assert len(set(titles)) == len(titles) == 80 + 24 + 8 + 4


@pytest.mark.parametrize("hops", [1, 2])
def test_every_question_is_answered_by_its_last_page_and_led_to_by_the_others(hops):
    pages = {page.title: page.text for page in WORLD.documents}
    for question in WORLD.questions[hops]:
        assert len(question.pages) == hops
        assert question.answer in pages[question.pages[-1]]
        assert question.pages[0] in question.text
        assert all(after in pages[before] for before, after in zip(question.pages, question.pages[1:]))


def test_rows_are_drawn_from_all_questions():
    rows = [Questions(QuestionsConfig(people=20), 5).row(index) for index in range(400)]
    assert {row.columns["hops"] for row in rows} == {1, 2}
    assert len({row.columns["question"] for row in rows}) > 100
    assert rows[0].messages[0]["content"] == INSTRUCTION + rows[0].columns["question"]
    assert rows[7] == Questions(QuestionsConfig(people=20), 5).row(7)
    assert rows[7] != Questions(QuestionsConfig(people=20), 6).row(7)


def test_the_form_of_a_row():
    text = Questions(QuestionsConfig(form="text", hops=[1]), 0).row(1)
    assert (text.text, text.messages, text.columns["hops"]) == (text.columns["question"], None, 1)
    bare = Questions(QuestionsConfig(form="question"), 0).row(1)
    assert bare.messages == [{"role": "user", "content": bare.columns["question"]}]

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from rlinf_cli.data.layouts import Layout, LayoutError, Reading, recognise
from rlinf_cli.data.rows import Row


def read(record: dict[str, Any], prompt_key: str = "", answer_key: str = "") -> Row:
    return recognise(record, Reading(prompt_key, answer_key)).row(record)


def learn(record: dict[str, Any], **keys: str) -> Row:
    """The row for supervised training."""
    return recognise(record, Reading(**keys, supervised=True)).row(record)


def test_text_is_taken_as_it_is() -> None:
    assert read({"prompt": " d47=", "answer": "7"}) == Row(text=" d47=", answer="7")


def test_messages_are_kept_for_the_chat_template() -> None:
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "Hi", "name": "Noor"}]
    assert read({"prompt": messages}) == Row(messages=messages)
    assert read({"messages": messages, "answer": "Hello"}) == Row(messages=messages, answer="Hello")


def test_other_columns_reach_the_reward() -> None:
    row = read({"prompt": "a", "level": 3, "tags": ["x"], "answer": "b", "none": None})
    assert row.columns == {"level": 3, "tags": ["x"], "none": None}


def test_gsm8k() -> None:
    row = read({"question": "How many?", "answer": "4 * 3 = 12 #### of these\n#### 12"})
    assert row == Row(messages=[{"role": "user", "content": "How many?"}], answer="12")


@pytest.mark.parametrize(("written", "answer"), [
    ("1,234", "1234"), ("-12,345,678.50", "-12345678.50"), ("1,23", "1,23"), ("a, b", "a, b"), (" 7 \n", "7"),
    ("1234,567", "1234,567"),
])
def test_only_separators_of_thousands_are_removed(written: str, answer: str) -> None:
    assert read({"question": "?", "answer": f"#### {written}"}).answer == answer


def test_verl() -> None:
    record = {"data_source": "gsm", "prompt": [{"role": "user", "content": "2+2"}],
              "reward_model": {"style": "rule", "ground_truth": "4"}, "extra_info": {"index": 0}}
    row = read(record)
    assert row.messages == record["prompt"]
    assert row.answer == "4"
    assert list(row.columns) == ["data_source", "reward_model", "extra_info"]


def test_verl_without_ground_truth_falls_back_to_the_answer() -> None:
    assert read({"prompt": "a", "answer": "b", "reward_model": {"style": "model"}}).answer == "b"


@pytest.mark.parametrize(("prompt_key", "answer_key", "expected"), [
    ("text", "", Row(text="T", answer="A")),
    ("text", "gold", Row(text="T", answer="G")),
    ("nested.prompt", "nested.deep.gold", Row(text="N", answer="D")),
    ("dotted.name", "", Row(text="literal", answer="A")),
    ("", "gold", Row(text="P", answer="G")),
])
def test_keys_name_other_columns(prompt_key: str, answer_key: str, expected: Row) -> None:
    record = {"prompt": "P", "text": "T", "answer": "A", "gold": "G", "dotted.name": "literal",
              "nested": {"prompt": "N", "deep": {"gold": "D"}}}
    row = read(record, prompt_key, answer_key)
    assert (row.text, row.answer) == (expected.text, expected.answer)
    assert "nested" in row.columns


def test_a_named_prompt_column_turns_recognition_off() -> None:
    record = {"question": "Q", "answer": "no mark", "prompt": "P", "reward_model": {"ground_truth": "G"}}
    assert read(record, "question") == Row(text="Q", answer="no mark",
                                           columns={"prompt": "P", "reward_model": {"ground_truth": "G"}})


def test_a_named_answer_is_not_searched_for_a_result() -> None:
    row = read({"question": "Q", "answer": "42"}, answer_key="answer")
    assert row == Row(messages=[{"role": "user", "content": "Q"}], answer="42")


@pytest.mark.parametrize(("value", "answer"), [("", ""), (7, "7"), (-0.5, "-0.5"), (3.0, "3.0"), (10**6, "1000000")])
def test_numbers_are_answers(value: Any, answer: str) -> None:
    assert read({"prompt": "p", "answer": value}).answer == answer


def test_without_answers_null_and_absence_are_the_same() -> None:
    layout = recognise({"prompt": "p", "answer": None})
    assert layout == Layout("prompt")
    assert layout.row({"prompt": "p", "answer": None}).answer is None
    assert layout.row({"prompt": "p"}).answer is None
    with pytest.raises(LayoutError, match="it has an answer, but the first row has none"):
        layout.row({"prompt": "p", "answer": "x"})


PROMPT = {"prompt": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(("record", "message"), [
    ({"promt": "x", "id": 1},
     r"no column 'prompt', 'question' or 'messages' \(columns: promt, id\); .*data.prompt_key"),
    ({}, r"\(it has no columns\)"),
    ({"prompt": 3}, "'prompt' is a number, expected text or a list of chat messages"),
    ({"prompt": None}, "'prompt' is null"),
    ({"prompt": True}, "'prompt' is true or false"),
    ({"prompt": {"role": "user"}}, "'prompt' is an object"),
    ({"prompt": ""}, "'prompt' is empty"),
    ({"prompt": []}, "'prompt' holds no message"),
    ({"prompt": ["x"]}, "message 1 of 'prompt' is text, expected an object with 'role' and 'content'"),
    ({"prompt": [{"role": "user"}]}, "message 1 of 'prompt' has no 'content'"),
    ({"prompt": [PROMPT["prompt"][0], {"content": "x"}]}, "message 2 of 'prompt' has no 'role'"),
    ({"prompt": [{"role": "user", "content": None}]}, "'content' in message 1 of 'prompt' is null, expected text"),
    ({"messages": [{"role": "human", "content": "x"}]},
     "message 1 of 'messages' has the unknown role 'human'; known: system"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "the last message of 'messages' is the assistant's"),
    ({"question": ["x"], "answer": "#### 1"}, "'question' is a list, expected text$"),
    ({"question": "x"}, r"no column 'answer' \(columns: question\); see data.answer_key"),
    ({"question": "x", "answer": "42"}, r"must end in '#### RESULT' \(GSM8K\); set data.answer_key=answer"),
    ({"question": "x", "answer": "4 ####  "}, "must end in '#### RESULT'"),
    ({"question": "x", "answer": 42}, "must end in '#### RESULT'"),
    ({"prompt": "x", "answer": ["a"]}, "the answer 'answer' is a list, expected text or a number$"),
    ({"prompt": "x", "answer": False}, "the answer 'answer' is true or false"),
    ({"prompt": "x", "answer": float("nan")}, "the answer 'answer' is nan, expected"),
    ({"prompt": "x", "reward_model": {"ground_truth": {"target": []}}}, "is an object, .*set data.prompt_key"),
])
def test_what_does_not_fit(record: dict[str, Any], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        read(record)


@pytest.mark.parametrize(("prompt_key", "answer_key", "message"), [
    ("questoin", "",
     r"no column 'questoin' \(columns: question, answer, meta\); did you mean 'question'; see data.prompt_key"),
    ("question", "meta.gold",
     r"no column 'meta.gold' \(columns: question, answer, meta\); did you mean 'meta'; see data.answer_key"),
    ("question.text", "", "no column 'question.text'"),
    ("question", "meta.none", "the answer 'meta.none' is null, expected text or a number"),
])
def test_named_columns_must_exist(prompt_key: str, answer_key: str, message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        read({"question": "q", "answer": "a", "meta": {"none": None}}, prompt_key, answer_key)


def test_a_later_row_must_have_what_the_first_has() -> None:
    layout = recognise({"prompt": "p", "answer": "a"})
    for record, message in [({"prompt": "p"}, "no column 'answer' (columns: prompt)"),
                            ({"prompt": "p", "answer": None}, "the answer 'answer' is null"),
                            ({"answer": "a"}, "no column 'prompt' (columns: answer)")]:
        with pytest.raises(LayoutError, match=re.escape(message)):
            layout.row(record)


def test_reading_leaves_the_record_alone() -> None:
    record = {"question": "q", "answer": "#### 1", "level": {"a": [1]}}
    before = json.dumps(record)
    read(record)
    assert json.dumps(record) == before


USER, SAID = {"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "It is 4."}


def test_the_assistants_last_message_is_the_target() -> None:
    row = learn({"messages": [USER, SAID], "level": 1})
    assert row == Row(messages=[USER], columns={"level": 1}, target="It is 4.")
    again = learn({"messages": [USER, SAID, USER, SAID], "answer": "4"})
    assert (again.messages, again.answer, again.target) == ([USER, SAID, USER], "4", "It is 4.")


def test_without_supervision_there_is_no_target() -> None:
    assert read({"prompt": "a", "answer": "b"}).target is None
    with pytest.raises(LayoutError, match="the last message of 'messages' is the assistant's"):
        read({"messages": [USER, SAID]})
    layout = recognise({"prompt": "a", "said": "b"}, Reading(target_key="said"))
    assert layout.row({"prompt": "a", "said": "b"}) == Row(text="a", columns={"said": "b"})


def test_the_whole_worked_answer_is_learned() -> None:
    row = learn({"question": "How many?", "answer": "4 * 3 = 12\n#### 12"})
    assert row == Row(messages=[{"role": "user", "content": "How many?"}], answer="12", target="4 * 3 = 12\n#### 12")


@pytest.mark.parametrize(("record", "keys", "expected"), [
    ({"prompt": "a", "answer": 7}, {}, Row(text="a", answer="7", target="7")),
    ({"prompt": "a", "answer": "b", "said": "so b"}, {"target_key": "said"}, Row(text="a", answer="b", target="so b")),
    ({"prompt": "a", "x": {"said": 1}}, {"target_key": "x.said"}, Row(text="a", columns={"x": {"said": 1}}, target="1")),
    ({"prompt": "a", "reward_model": {"ground_truth": "g"}}, {},
     Row(text="a", answer="g", columns={"reward_model": {"ground_truth": "g"}}, target="g")),
    ({"q": "a", "said": "b"}, {"prompt_key": "q", "answer_key": "said"}, Row(text="a", answer="b", target="b")),
])
def test_targets(record: dict[str, Any], keys: dict[str, str], expected: Row) -> None:
    assert learn(record, **keys) == expected


@pytest.mark.parametrize(("record", "keys", "message"), [
    ({"prompt": "a"}, {}, "there is no response to learn: .* data.target_key"),
    ({"prompt": "a", "answer": "b"}, {"target_key": "said"}, "no column 'said' .*see data.target_key"),
    ({"prompt": "a", "said": None}, {"target_key": "said"}, "the target 'said' is null, expected text or a number"),
    ({"messages": [SAID]}, {}, "'messages' holds nothing but the assistant's message"),
    ({"messages": [USER, SAID], "said": "x"}, {"target_key": "said"}, "the last message of 'messages' is the assistant's"),
])
def test_what_cannot_be_learned(record: dict[str, Any], keys: dict[str, str], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        learn(record, **keys)


def test_fields_of_a_message_that_are_null_are_not_there() -> None:
    assert read({"prompt": [{"role": "user", "content": "x", "name": None, "tool_calls": None}]}).messages == [
        {"role": "user", "content": "x"}]

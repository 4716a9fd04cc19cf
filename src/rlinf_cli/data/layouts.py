"""The layouts of a data file: which columns hold prompt, answer and target, and how they are written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rlinf_cli.data.rows import Row
from rlinf_cli.errors import did_you_mean

ROLES = ("system", "developer", "user", "assistant", "tool")
"""Who can have written a chat message."""

_PROMPTS = ("prompt", "question", "messages")
_GROUND_TRUTH = "reward_model.ground_truth"
_ABSENT = object()
_THOUSANDS = re.compile(r"-?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?")


class LayoutError(ValueError):
    """A record does not fit; the message is the end of a sentence that begins with the file and the line."""


@dataclass(frozen=True)
class Reading:
    """What the configuration says about the rows of files and of hub data sets; an empty key is recognised."""

    prompt_key: str = ""
    answer_key: str = ""
    target_key: str = ""
    split: str = "train"
    """Of a hub data set."""
    supervised: bool = False
    """Each row must have a response to learn."""


RECOGNISED = Reading()
"""All from the columns."""


@dataclass(frozen=True)
class Layout:
    """Where a file keeps prompt, answer and target. Keys are column names, or dotted paths into nested objects."""

    prompt: str
    answer: str = ""
    """Empty: the file has no answers."""
    asks: bool = False
    """The prompt is a question to be put as a user message."""
    worked: bool = False
    """The answer is a worked solution that ends in `#### RESULT`."""
    supervised: bool = False
    """Rows have a target: what `target` names, else the assistant's last message, else the answer as it is written."""
    target: str = ""

    def row(self, record: Mapping[str, Any]) -> Row:
        """The row that `record` describes. Raises LayoutError when it deviates from this layout."""
        text, messages = _prompt(_required(record, self.prompt, "data.prompt_key"), self.prompt, self.asks)
        messages, spoken = self._cut(messages)
        columns = _others(record, self.prompt, self.answer, self.target)
        return Row(text, messages, self._answer(record), columns, self._target(record, spoken))

    def _cut(self, messages: list[dict[str, str]] | None) -> tuple[list[dict[str, str]] | None, str | None]:
        """The messages of the prompt, and what the assistant said after them."""
        if not messages or messages[-1]["role"] != "assistant":
            return messages, None
        if not self.supervised or self.target:
            raise LayoutError(f"the last message of {self.prompt!r} is the assistant's, but a prompt ends with a message "
                              "to answer")
        if len(messages) == 1:
            raise LayoutError(f"{self.prompt!r} holds nothing but the assistant's message")
        return messages[:-1], messages[-1]["content"]

    def _target(self, record: Mapping[str, Any], spoken: str | None) -> str | None:
        if not self.supervised or spoken is not None:
            return spoken
        if self.target:
            return _text(_required(record, self.target, "data.target_key"), f"the target {self.target!r}")
        if not self.answer:
            raise LayoutError("there is no response to learn: neither an answer nor an assistant's message at the end; "
                              "name its column with data.target_key")
        return _answer_text(_lookup(record, self.answer), self.answer)

    def _answer(self, record: Mapping[str, Any]) -> str | None:
        if not self.answer:
            if record.get("answer") is not None:
                raise LayoutError("it has an answer, but the first row has none")
            return None
        value = _required(record, self.answer, "data.answer_key")
        return _worked_result(value) if self.worked else _answer_text(value, self.answer)


def recognise(record: Mapping[str, Any], reading: Reading = RECOGNISED) -> Layout:
    """The layout of a file whose first row is `record`; the keys that the configuration names come first.

    Raises LayoutError when no column can be the prompt.
    """
    return replace(_prompt_and_answer(record, reading.prompt_key, reading.answer_key), supervised=reading.supervised,
                   target=reading.target_key if reading.supervised else "")


def _prompt_and_answer(record: Mapping[str, Any], prompt_key: str, answer_key: str) -> Layout:
    if prompt_key:
        return Layout(prompt_key, answer_key or _if_present(record, "answer"))
    prompt = next((name for name in _PROMPTS if name in record), "")
    if not prompt:
        raise LayoutError(f"no column 'prompt', 'question' or 'messages' ({_columns(record)}); "
                          "name the prompt's with data.prompt_key")
    asks = prompt == "question"
    if answer_key:
        return Layout(prompt, answer_key, asks=asks)
    if asks:
        return Layout(prompt, "answer", asks=True, worked=True)
    return Layout(prompt, _if_present(record, _GROUND_TRUTH) or _if_present(record, "answer"))


def _lookup(record: Mapping[str, Any], key: str) -> Any:
    """The value at a column name or dotted path; `_ABSENT` when there is none."""
    if key in record:
        return record[key]
    value: Any = record
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def _if_present(record: Mapping[str, Any], key: str) -> str:
    return "" if _lookup(record, key) in (_ABSENT, None) else key


def _required(record: Mapping[str, Any], key: str, option: str) -> Any:
    value = _lookup(record, key)
    if value is _ABSENT:
        raise LayoutError(f"no column {key!r} ({_columns(record)}){did_you_mean(key, record)}; see {option}")
    return value


def _others(record: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in taken}


def _columns(record: Mapping[str, Any]) -> str:
    return "columns: " + ", ".join(record) if record else "it has no columns"


def _prompt(value: Any, key: str, asks: bool) -> tuple[str | None, list[dict[str, str]] | None]:
    if isinstance(value, list) and not asks:
        return None, _messages(value, key)
    if not isinstance(value, str):
        wanted = "text" if asks else "text or a list of chat messages"
        raise LayoutError(f"{key!r} is {_kind(value)}, expected {wanted}")
    if not value:
        raise LayoutError(f"{key!r} is empty")
    return (None, [{"role": "user", "content": value}]) if asks else (value, None)


def _messages(value: list[Any], key: str) -> list[dict[str, str]]:
    if not value:
        raise LayoutError(f"{key!r} holds no message")
    for number, message in enumerate(value, 1):
        _check_message(message, f"message {number} of {key!r}")
    # Parquet gives every message the fields of all others, null where it has none
    return [{name: part for name, part in message.items() if part is not None} for message in value]


def _check_message(message: Any, where: str) -> None:
    if not isinstance(message, dict):
        raise LayoutError(f"{where} is {_kind(message)}, expected an object with 'role' and 'content'")
    for name in ("role", "content"):
        if name not in message:
            raise LayoutError(f"{where} has no {name!r}")
        if not isinstance(message[name], str):
            raise LayoutError(f"{name!r} in {where} is {_kind(message[name])}, expected text")
    if message["role"] not in ROLES:
        raise LayoutError(f"{where} has the unknown role {message['role']!r}; known: {', '.join(ROLES)}")


def _answer_text(value: Any, key: str) -> str:
    advice = "; to leave it to the reward as a column, set data.prompt_key" if key == _GROUND_TRUTH else ""
    return _text(value, f"the answer {key!r}", advice)


def _text(value: Any, what: str, advice: str = "") -> str:
    if isinstance(value, str):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value):
        raise LayoutError(f"{what} is {_kind(value)}, expected text or a number{advice}")
    return str(value)


def _worked_result(value: Any) -> str:
    _, mark, result = value.rpartition("####") if isinstance(value, str) else ("", "", "")
    if not mark or not result.strip():
        raise LayoutError("'answer' beside 'question' must end in '#### RESULT' (GSM8K); "
                          "set data.answer_key=answer to take it as it is")
    result = result.strip()
    return result.replace(",", "") if _THOUSANDS.fullmatch(result) else result


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number", str: "text",
             list: "a list", dict: "an object"}
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value}"
    return names.get(type(value), f"of type {type(value).__name__}")

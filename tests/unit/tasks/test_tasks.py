"""What all built-in tasks have in common."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from rlinf_cli.api import Row
from rlinf_models.tiny import CHARACTERS
from rlinf_tasks import register_datasets, register_rewards
from rlinf_tasks.config import ArithmeticConfig, CountdownConfig, DigitsConfig, SortingConfig
from rlinf_tasks.draw import Draw

TASKS = {extension.name: extension for extension in register_datasets()}
LARGEST = {"digits": DigitsConfig(8), "sorting": SortingConfig(8), "arithmetic": ArithmeticConfig(["+", "-", "*"], 9, "text"),
           "countdown": CountdownConfig(6, 1000, ["+", "-"], "text")}


def made(name: str, seed: int = 0, **settings: Any) -> Any:
    extension = TASKS[name]
    config = extension.load_config()
    assert config is not None
    return extension.load()(config(**settings), seed)


@pytest.mark.parametrize("name", TASKS)
def test_a_row_follows_from_seed_and_index(name: str) -> None:
    data = made(name)
    assert data.size is None
    assert [made(name).row(i) for i in (5, 0, 10**12)] == [data.row(i) for i in (5, 0, 10**12)]
    assert [made(name, 1).row(i) for i in range(8)] != [data.row(i) for i in range(8)]
    assert [made(name, -1).row(i) for i in range(8)] != [data.row(i) for i in range(8)]


@pytest.mark.parametrize(("name", "row"), [
    ("digits", Row(text="d47=", answer="7")),
    ("sorting", Row(text="s9214=", answer="1249")),
    ("arithmetic", Row(messages=[{"role": "user", "content": "What is 55 + 91?"}], answer="146")),
    ("countdown", Row(answer="17+15-20", columns={"numbers": [15, 17, 20], "target": 12}, messages=[{
        "role": "user", "content": "Make 12 of the numbers 15, 17, 20: use each of them exactly once, with the operations +, "
                                   "-, * and parentheses. End with the expression, on a line of its own."}])),
])
def test_written_down(name: str, row: Row) -> None:
    """Another Python or platform must give the same."""
    assert made(name).row(0) == row


@pytest.mark.parametrize("name", TASKS)
def test_presets_have_room_for_the_largest(name: str) -> None:
    preset, data = TASKS[name].preset, TASKS[name].load()(LARGEST[name], 0)
    for row in map(data.row, range(200)):
        assert len(row.text) <= preset["rollout.max_prompt_tokens"]
        assert len(row.answer) < preset["rollout.max_new_tokens"]


@pytest.mark.parametrize("name", TASKS)
def test_bare_text_is_made_of_the_characters_of_the_tiny_model(name: str) -> None:
    data = TASKS[name].load()(LARGEST[name], 0)
    for row in map(data.row, range(50)):
        assert set(row.text) <= {*CHARACTERS, "?"}


@pytest.mark.parametrize("name", ["arithmetic", "countdown"])
def test_a_form_says_the_same_as_the_other(name: str) -> None:
    extension = TASKS[name]
    config = extension.load_config()
    chat, text = (extension.load()(replace(config(), form=form), 3) for form in ("chat", "text"))
    for index in range(20):
        one, other = chat.row(index), text.row(index)
        assert (one.answer, one.columns) == (other.answer, other.columns)
        assert one.text is None
        (message,) = one.messages
        assert message["role"] == "user"
        numbers = [re.findall(r"\d+", said) for said in (message["content"], other.text)]
        assert sorted(numbers[0]) == sorted(numbers[1])


def test_draws_are_uniform_and_independent() -> None:
    counts = [0] * 10
    for index in range(2000):
        draw = Draw("test", 0, index)
        counts[draw.between(3, 12) - 3] += 1
        counts[draw.choice(range(10))] += 1
    assert sum((count - 400) ** 2 / 400 for count in counts) < 27.9  # chi-square, 9 degrees, p = 0.001
    assert Draw("test", 0, 0).between(0, 10**9) != Draw("other", 0, 0).between(0, 10**9)


def test_listing_them_is_light() -> None:
    code = ("import sys, rlinf_tasks as t; [e.load_config() for e in [*t.register_datasets(), *t.register_rewards()]];"
            "[e.load() for e in t.register_datasets()];"
            "print([m for m in ('numpy', 'torch', 'ray', 'transformers') if m in sys.modules])")
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_reward_of_countdown_is_chosen_with_it() -> None:
    (reward,) = register_rewards()
    assert TASKS["countdown"].preset["reward.name"] == reward.name == "countdown"
    assert reward.load().isolated is False

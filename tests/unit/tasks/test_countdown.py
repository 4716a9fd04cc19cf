from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_tasks.config import CountdownConfig, CountdownRewardConfig
from rlinf_tasks.countdown import Countdown
from rlinf_tasks.countdown_reward import CountdownReward, constants, evaluate, expression, parse


@dataclass
class Scored:
    response: str
    columns: dict[str, Any] = field(default_factory=lambda: {"numbers": [3, 5, 7], "target": 56})
    finish: str = "stop"


def score(response: str, columns: dict[str, Any] | None = None, finish: str = "stop", **settings: Any) -> dict[str, float]:
    sample = Scored(response, columns or {"numbers": [3, 5, 7], "target": 56}, finish)
    return CountdownReward(CountdownRewardConfig(**settings)).score(sample)


RIGHT, VALID, WRONG = ({"reward": reward, "countdown": right, "valid": valid}
                       for reward, right, valid in ((1.0, 1.0, 1.0), (0.1, 0.0, 1.0), (0.0, 0.0, 0.0)))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(2, 1000), st.permutations(["+", "-", "*", "/"]), st.integers(1, 3))
def test_every_row_is_solvable(index: int, count: int, largest: int, signs: list[str], kinds: int) -> None:
    """By its own answer, to the taste of its own reward."""
    config = CountdownConfig(count, largest, [*signs[:kinds], "+"])
    row = Countdown(config, seed=1).row(index)
    numbers, target = row.columns["numbers"], row.columns["target"]
    assert len(numbers) == count
    assert all(1 <= number <= largest for number in numbers)
    assert target >= 0
    assert score(row.answer or "", dict(row.columns)) == RIGHT
    assert set("+-*/") & set(row.answer or "") <= {*config.operations}


def test_the_task_names_numbers_target_and_operations() -> None:
    row = Countdown(CountdownConfig(), seed=0).row(0)
    (message,) = row.messages or []
    assert f"Make {row.columns['target']} of the numbers {', '.join(map(str, row.columns['numbers']))}" in message["content"]
    assert "+, -, *" in message["content"]


def test_division_alone_does_not_do() -> None:
    assert list(CountdownConfig(operations=["/"]).problems()) == [
        "data.operations needs one of +, -, *: not every two numbers can be divided"]
    assert list(CountdownConfig(operations=["/", "-"]).problems()) == []


@pytest.mark.parametrize("response", [
    "(3+5)*7", "7 * (5 + 3)", "I add first.\n\n(3 + 5) * 7 = 56\n", "<answer>7*(3+5)</answer> is it", "`(3+5)×7`",
    "<answer>3</answer> no: <answer>\n(3+5)*7\n</answer>", "$(3+5)*7$",
])
def test_right_expressions(response: str) -> None:
    assert score(response) == RIGHT


@pytest.mark.parametrize("response", ["3*5+7", "3+5+7 = 56", "(3/5)/7", "7-5-3"])
def test_other_expressions_of_the_numbers(response: str) -> None:
    assert score(response) == VALID
    assert score(response, valid=0.3)["reward"] == 0.3


@pytest.mark.parametrize("response", [
    "", "  \n ", "56", "fifty-six", "8*7", "(3+5)*7*1", "(3+5)*7+0", "(3+5)", "3+5)*7", "(3+5)7", "3,5,7", "3 5 7", "(3+5)*7;",
    "(3+5)**7", "(3+5)//7", "+3+5+7", "(3+5)*-7", "3+5*7j", "3.0+5*7", "0x3+5*7", "3+5*7 if 1 else 0", "__import__('os')",
    "3/(5-5)*7", "3+5+7+(", "(" * 120 + "3", "3+5*7\x00", "1" * 300, "True+5*7",
])
def test_what_is_no_expression_of_the_numbers(response: str) -> None:
    assert score(response) == WRONG


def test_dividing_by_zero_is_no_value() -> None:
    assert score("7/(5-5)", {"numbers": [5, 5, 7], "target": 7}) == WRONG


def test_at_most_once() -> None:
    columns = {"numbers": [3, 5, 7, 7], "target": 35}
    assert score("5*7", columns) == WRONG
    assert score("5*7", columns, use="at-most") == RIGHT
    assert score("7+7+7*3", columns, use="at-most") == WRONG
    assert score("7*5*7", columns, use="at-most") == VALID


def test_a_response_that_was_cut_off() -> None:
    assert score("(3+5)*7", finish="length") == WRONG
    assert score("(3+5)*7", finish="length", require_end=False) == RIGHT


@pytest.mark.parametrize("columns", [{"nums": [3, 5, 7], "target": 56}, {"numbers": [3, 5, 7], "target": "56"},
                                     {"numbers": [3, 5, 7], "target": 56.0}])
def test_other_ways_to_give_the_task(columns: dict[str, Any]) -> None:
    assert score("(3+5)*7", columns) == RIGHT


@pytest.mark.parametrize("columns", [{"target": 56}, {"numbers": [3], "level": 1}, {"numbers": "3", "target": 3}])
def test_a_row_without_a_task_raises(columns: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="needs the columns numbers"):
        score("3", columns)


def test_values_are_exact() -> None:
    tree = parse("1/3*3")
    assert tree is not None
    assert evaluate(tree) == Fraction(1)
    assert sorted(constants(tree)) == [1, 3, 3]


@settings(deadline=None)
@given(st.text(alphabet="0123456789+-*/() .eE_jxn\n=", max_size=300))
def test_any_text_has_a_reward(text: str) -> None:
    assert score(text, use="at-most") in (RIGHT, VALID, WRONG)


def test_the_longest_nests_no_deeper_than_python_reads() -> None:
    assert score("(" * 99 + "3" + ")" * 99) == WRONG
    assert score("-".join(["3"] * 100)) == WRONG
    assert expression("a\n b = c ") == "b"

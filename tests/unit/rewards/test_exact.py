from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.config.rules import Rule
from rlinf_cli.rl.trajectory import Sample
from rlinf_rewards import register_rewards
from rlinf_rewards.config import ExactConfig
from rlinf_rewards.exact import Exact, last_number

MakeSample = Callable[..., Sample]


@pytest.mark.parametrize(("response", "answer", "right"), [
    ("7", "7", 1), (" 7\n", "7", 1), ("7", " 7 ", 1), ("07", "7", 0), ("7.", "7", 0), ("", "7", 0), ("", "", 1),
    ("a  b", "a b", 0), ("A", "a", 0),
])
def test_the_whole_response(sample: MakeSample, response: str, answer: str, right: int) -> None:
    score = Exact(ExactConfig(extract="all")).score(sample(response, answer))
    assert score == {"reward": right, "exact": right, "ended": 1}


@pytest.mark.parametrize(("response", "answer", "right"), [
    ("So 3 * 24 = 72 lemons.", "72", 1), ("It is 12,300.", "12300", 1), ("12300.0", "12,300", 1), ("#### -3", "-3", 1),
    ("72, not 71", "72", 0), ("no number", "72", 0), ("", "72", 0), ("0.5", ".50", 1), ("72 kg", "72 lemons", 1),
])
def test_the_last_number(sample: MakeSample, response: str, answer: str, right: int) -> None:
    score = Exact(ExactConfig(extract="last-number")).score(sample(response, answer))
    assert score == {"reward": right, "exact": right, "ended": 1}


@pytest.mark.parametrize(("text", "number"), [
    ("1,234,567.50", "1234567.5"), ("12,34", "34"), ("1,2345", "2345"), ("1, 2, 3", "3"), ("0042", "42"),
    ("x = -5", "-5"), ("3-5", "5"), ("10 - 5", "5"), ("(2)-1", "1"),
    ("\u22128", "-8"), ("-.5", "-0.5"), ("$1,000", "1000"),
    ("**42**", "42"), ("42.", "42"), ("3.14.", "3.14"), ("\\boxed{-17}", "-17"), ("50%", "50"),
    ("9" * 5000, "9" * 5000),
])
def test_how_numbers_are_read(text: str, number: str) -> None:
    assert last_number(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "none", "-", ".", ",", "٣", "²"])
def test_what_is_no_number(text: str) -> None:
    assert last_number(text) is None


@given(st.decimals(-(10**9), 10**9, places=3), st.text("abc .:\n"))
def test_a_written_number_is_read_back(number: Decimal, before: str) -> None:
    text = f"{before} {number:,}" if before.rstrip()[-1:] != "." else f" {number:,}"
    assert last_number(text) == number
    assert last_number(f"{text} euros, I think.") == number


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    number = last_number(text)
    assert number is None or number.is_finite()


@pytest.mark.parametrize(("finish", "require_end", "reward"), [
    ("stop", True, 1), ("length", True, 0), ("abort", True, 0), ("length", False, 1), ("stop", False, 1),
])
def test_a_response_that_was_cut_off(sample: MakeSample, finish: str, require_end: bool, reward: int) -> None:
    score = Exact(ExactConfig(require_end=require_end)).score(sample("7", "7", finish=finish))
    assert score == {"reward": reward, "exact": reward, "ended": finish == "stop"}


@pytest.mark.parametrize(("response", "finish", "reward"), [
    ("4", "stop", 1.0), ("5", "stop", 0.2), ("4", "length", 0.0), ("5", "length", 0.0),
])
def test_a_share_for_ending(sample: MakeSample, response: str, finish: str, reward: float) -> None:
    score = Exact(ExactConfig(ended=0.2)).score(sample(response, "4", finish=finish))
    assert score["reward"] == pytest.approx(reward)
    assert score["exact"] == (reward == 1)


@pytest.mark.parametrize("extract", ["all", "last-number"])
def test_a_missing_answer_is_no_zero(sample: MakeSample, extract: str) -> None:
    with pytest.raises(ValueError, match="the row has no answer, which reward 'exact' compares with"):
        Exact(ExactConfig(extract=extract)).score(sample("7"))


def test_an_answer_without_number_is_no_zero(sample: MakeSample) -> None:
    with pytest.raises(ValueError, match="the answer 'seven' holds no number"):
        Exact(ExactConfig(extract="last-number")).score(sample("7", "seven"))


def test_keys_have_limits() -> None:
    rules: dict[str, Rule] = {name: field.metadata["rule"] for name, field in ExactConfig.__dataclass_fields__.items()
                              if "rule" in field.metadata}
    assert [share for share in (-0.1, 0, 0.5, 1, 1.1) if rules["ended"].allows(share)] == [0, 0.5, 1]
    ways = [way for way in ("auto", "all", "last-number", "boxed") if rules["extract"].allows(way)]
    assert ways == ["auto", "all", "last-number"]


def test_the_extension_loads() -> None:
    extension = next(one for one in register_rewards() if one.name == "exact")
    assert (extension.load(), extension.load_config()) == (Exact, ExactConfig)


def test_it_is_light() -> None:
    code = ("import sys, rlinf_rewards as r;[e.load_config() for e in r.register_rewards()]; "
            "import rlinf_rewards.exact;"
            "print([m for m in ('numpy', 'torch', 'ray', 'transformers') if m in sys.modules])")
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize(("answer", "response", "right"), [
    ("7", "The answer is 7.", 1.0),
    ("1,200", "so she has 1200.0 lemons", 1.0),
    ("7", "7 or 8", 0.0),
    ("seven", "seven", 1.0),
    ("seven", "it is seven", 0.0),
    ("7 apples", "7", 0.0),
])
def test_auto_compares_numbers_when_the_answer_is_one(sample: MakeSample, answer: str, response: str, right: float) -> None:
    assert Exact(ExactConfig()).score(sample(response, answer))["exact"] == right

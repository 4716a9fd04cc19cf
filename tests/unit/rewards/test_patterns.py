from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rlinf_cli.rl.trajectory import Sample
from rlinf_rewards.config import FormatConfig, RegexConfig
from rlinf_rewards.patterns import Format, Regex

MakeSample = Callable[..., Sample]


@pytest.mark.parametrize(("response", "reward"), [
    ("<think>2 + 2</think><answer>4</answer>", 1),
    ("\n<think>\n2 + 2\nis 4\n</think>\n\n<answer>\n4\n</answer>\n", 1),
    ("<think>a < b and b > c</think> <answer><b>4</b></answer>", 1),
    ("So: <think>2 + 2</think><answer>4</answer>", 0),
    ("<think>2 + 2</think><answer>4</answer> I hope", 0),
    ("<think>2 + 2</think> so <answer>4</answer>", 0),
    ("<answer>4</answer><think>2 + 2</think>", 0),
    ("<think></think><answer>4</answer>", 0),
    ("<think>2 + 2</think><answer>4</answer><answer>5</answer>", 0),
    ("<think>a</think><think>b</think><answer>4</answer>", 0),
    ("<think>2 + 2<answer>4</answer>", 0),
    ("", 0),
])
def test_thoughts_and_answer(sample: MakeSample, response: str, reward: int) -> None:
    assert Format(FormatConfig()).score(sample(response)) == reward


@pytest.mark.parametrize(("mode", "response", "reward"), [
    ("whole", "Answer: 7", 1), ("whole", "  Answer: 7\n", 1), ("whole", "My answer: 7", 0), ("whole", "Answer: 7!", 0),
    ("anywhere", "The Answer: 7!", 1), ("anywhere", "The answer: 7!", 0),
])
def test_a_pattern_of_ones_own(sample: MakeSample, mode: str, response: str, reward: int) -> None:
    assert Format(FormatConfig(r"Answer: \d+", mode)).score(sample(response)) == reward


@pytest.mark.parametrize(("response", "answer", "reward", "found"), [
    ("<answer>Paris</answer>", "Paris", 1, 1),
    ("<answer>\n Paris </answer>", " Paris", 1, 1),
    ("<answer>paris</answer>", "Paris", 0, 1),
    ("<answer>Rome</answer> no: <answer>Paris</answer>", "Paris", 1, 1),
    ("<answer>Paris</answer> no: <answer>Rome</answer>", "Paris", 0, 1),
    ("Paris", "Paris", 0, 0),
    ("<answer>1,200.0</answer>", "1200", 1, 1),
    ("<answer>1200 lemons</answer>", "1200", 0, 1),
    ("<answer></answer>", "1200", 0, 1),
])
def test_what_the_pattern_finds_is_compared(sample: MakeSample, response: str, answer: str, reward: int, found: int) -> None:
    assert Regex(RegexConfig()).score(sample(response, answer)) == {"reward": reward, "found": found}


def test_the_first_match_and_the_case_of_letters(sample: MakeSample) -> None:
    reward = Regex(RegexConfig(take="first", ignore_case=True))
    assert reward.score(sample("<answer>PARIS</answer> <answer>Rome</answer>", "Paris"))["reward"] == 1


def test_a_group_that_took_no_part_is_empty(sample: MakeSample) -> None:
    reward = Regex(RegexConfig(pattern=r"answer: (?:none|(\d+))"))
    assert reward.score(sample("answer: none", "7")) == {"reward": 0, "found": 1}


def test_the_answer_must_be_there(sample: MakeSample) -> None:
    with pytest.raises(ValueError, match=r"no answer, which reward 'regex' compares with \(see data\.answer_key\)"):
        Regex(RegexConfig()).score(sample("<answer>4</answer>"))


@pytest.mark.parametrize(("config", "problem"), [
    (FormatConfig("<think>("), "reward.pattern=<think>( is no regular expression: missing ), unterminated subpattern"),
    (RegexConfig("[0-9"), "reward.pattern=[0-9 is no regular expression: unterminated character set"),
    (RegexConfig("[0-9]+"), "reward.pattern=[0-9]+ has no group: put ( and ) around what is compared"),
])
def test_patterns_that_cannot_be_used(config: FormatConfig | RegexConfig, problem: str) -> None:
    (told,) = config.problems()
    assert told.startswith(problem)


def test_the_defaults_can_be_used() -> None:
    assert [*FormatConfig().problems(), *RegexConfig().problems()] == []
    assert re.compile(FormatConfig().pattern).groups == 0

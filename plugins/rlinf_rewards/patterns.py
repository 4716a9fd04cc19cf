"""Rewards by regular expression. A pattern of a user's may take for ever, so they are called where they can be killed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rlinf_rewards.config import FormatConfig, RegexConfig
from rlinf_rewards.exact import is_number, last_number

if TYPE_CHECKING:
    from rlinf_cli.api import Sample


class Format:
    """reward = [the pattern matches the response]"""

    def __init__(self, config: FormatConfig) -> None:
        pattern = re.compile(config.pattern, re.DOTALL)
        self._find = pattern.fullmatch if config.mode == "whole" else pattern.search

    def score(self, sample: Sample) -> float:
        return float(self._find(sample.response.strip()) is not None)


class Regex:
    """reward = [what the pattern finds says what the answer says]"""

    def __init__(self, config: RegexConfig) -> None:
        self.config = config
        self._pattern = re.compile(config.pattern, re.DOTALL)

    def score(self, sample: Sample) -> dict[str, float]:
        """`reward`, and as 0 or 1: `found`, whether the pattern matched. ValueError when there is no answer."""
        if sample.answer is None:
            raise ValueError("the row has no answer, which reward 'regex' compares with (see data.answer_key)")
        matches = list(self._pattern.finditer(sample.response))
        if not matches:
            return {"reward": 0.0, "found": 0.0}
        said = matches[0 if self.config.take == "first" else -1][1] or ""
        return {"reward": float(self._same(said.strip(), sample.answer.strip())), "found": 1.0}

    def _same(self, said: str, answer: str) -> bool:
        if is_number(answer):
            return is_number(said) and last_number(said) == last_number(answer)
        return said.casefold() == answer.casefold() if self.config.ignore_case else said == answer

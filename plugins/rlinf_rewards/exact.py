"""reward = ended · [the response ended by itself] + (1 - ended) · [it says what the answer says]"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING

from rlinf_rewards.config import ExactConfig

if TYPE_CHECKING:
    from rlinf_cli.api import Sample

# A minus sign after a letter, a digit or a closing bracket is a dash or a subtraction.
_NUMBER = re.compile(r"(?:(?<![\w)\]])-)?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)")


class Exact:
    """Compares the response with the row's answer."""

    isolated = False

    def __init__(self, config: ExactConfig) -> None:
        self.config = config

    def score(self, sample: Sample) -> dict[str, float]:
        """`reward`, and as 0 or 1: `exact` (right), `ended`. ValueError when there is no answer to compare with."""
        if sample.answer is None:
            raise ValueError("the row has no answer, which reward 'exact' compares with (see data.answer_key)")
        ended = sample.finish == "stop"
        exact = (ended or not self.config.require_end) and self._same(sample.response, sample.answer)
        share = self.config.ended
        return {"reward": share * ended + (1 - share) * exact, "exact": float(exact), "ended": float(ended)}

    def _same(self, response: str, answer: str) -> bool:
        if self.config.extract == "all" or (self.config.extract == "auto" and not is_number(answer)):
            return response.strip() == answer.strip()
        wanted = last_number(answer)
        if wanted is None:
            raise ValueError(f"the answer {answer!r} holds no number, which reward.extract=last-number compares with")
        return last_number(response) == wanted


def is_number(text: str) -> bool:
    """Whether the text is one number and nothing else."""
    return _NUMBER.fullmatch(text.strip().replace("\u2212", "-")) is not None


def last_number(text: str) -> Decimal | None:
    """The last integer or decimal in `text`; `1,234.0` is 1234. None when there is none."""
    found = _NUMBER.findall(text.replace("\u2212", "-"))
    return Decimal(found[-1].replace(",", "")) if found else None

"""reward = 1 · right + (1 - right) · (format · well-formed + retrieval · found)

right: the answer is the row's, both in SQuAD's normal form (arXiv 1606.05250: lower case, without punctuation and articles), or
the F1 score of their words; well-formed: the last turn holds one answer between its tags; found: an observation holds the row's
answer. Source of the parts: Search-R1 (arXiv 2503.09516) and its empirical study (arXiv 2505.15117).

Deviation: with `f1` the score takes the place of `right`, so that partly right answers earn their share of the rest as well.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from typing import TYPE_CHECKING

from rlinf_search.config import AnswerConfig

if TYPE_CHECKING:
    from rlinf_cli.api import Sample

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class AnswerReward:
    """Compares what the last turn answers with the row's answer; of several right ones (a list in the row's column `answers`) the
    best counts."""

    isolated = False

    def __init__(self, config: AnswerConfig) -> None:
        self.config = config
        self._answer = re.compile(rf"<{config.tag}>(.*?)</{config.tag}>", re.DOTALL) if config.tag else None

    def score(self, sample: Sample) -> dict[str, float]:
        """`reward`, and `right`, `format`, `retrieval`, each 0 to 1. ValueError when there is no answer to compare with."""
        wanted = _wanted(sample)
        given = self._given(sample.response)
        right = max(self._right(given, one) for one in wanted) if given else 0.0
        formed, found = float(bool(given)), float(any(holds(_observed(sample), one) for one in wanted))
        rest = self.config.format * formed + self.config.retrieval * found
        return {"reward": right + (1 - right) * rest, "right": right, "format": formed, "retrieval": found}

    def _given(self, response: str) -> str:
        """What is answered; empty where there is no answer, or more than one."""
        if self._answer is None:
            return response.strip()
        found = self._answer.findall(response)
        return found[0].strip() if len(found) == 1 else ""

    def _right(self, given: str, wanted: str) -> float:
        if self.config.match == "f1":
            return f1(given, wanted)
        if self.config.match == "contains":
            return float(holds(given, wanted))
        return float(normal(given) == normal(wanted))


def normal(text: str) -> str:
    """SQuAD's normal form of an answer."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def f1(given: str, wanted: str) -> float:
    """Harmonic mean of precision and recall of the words, 0 to 1."""
    mine, theirs = normal(given).split(), normal(wanted).split()
    common = sum((Counter(mine) & Counter(theirs)).values())
    return 2 * common / (len(mine) + len(theirs)) if common else 0.0


def holds(text: str, wanted: str) -> bool:
    """Whether the words of the one stand in the other, one after the other."""
    words = normal(wanted)
    return bool(words) and f" {words} " in f" {normal(text)} "


def _observed(sample: Sample) -> str:
    return "\n".join(turn.text for turn in sample.transcript if turn.role == "tool")


def _wanted(sample: Sample) -> list[str]:
    several = sample.columns.get("answers") or ([] if sample.answer is None else [sample.answer])
    if not several:
        raise ValueError("the row has no answer, which reward 'answer' compares with (see data.answer_key)")
    return [str(one) for one in several]

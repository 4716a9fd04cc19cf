"""reward = [the response's final expression is mathematically equal to the answer], as math-verify decides.

math-verify's own time limits are off: they need SIGALRM, which a computation with large numbers (5^5^5^5) does not even
notice. The limit is `reward.timeout_s`, at which the process is killed.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from rlinf_math.config import MathConfig

if TYPE_CHECKING:
    from rlinf_cli.api import Sample

_BOXED = "\\boxed{"


class Math:
    """Compares expressions: numbers, fractions, roots, sets, intervals, tuples, matrices, equations."""

    def __init__(self, config: MathConfig) -> None:
        import math_verify

        logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its time limits are off
        self.config = config
        self._verify = functools.partial(math_verify.verify, float_rounding=config.digits, timeout_seconds=None)
        self._parse = functools.partial(math_verify.parse, parsing_timeout=None)
        self._answers = functools.lru_cache(maxsize=256)(self._read_answer)

    def score(self, sample: Sample) -> dict[str, float]:
        """`reward`, and as 0 or 1: `found`, whether the response holds an expression. ValueError when there is no answer,
        or it is none."""
        if sample.answer is None:
            raise ValueError("the row has no answer, which reward 'math' compares with (see data.answer_key)")
        answer, said = self._answers(sample.answer), self._read(sample.response)
        return {"reward": float(bool(said) and self._verify(answer, said)), "found": float(bool(said))}

    def _read(self, response: str) -> list[Any]:
        boxed = last_boxed(response)
        if boxed is not None:
            return list(self._parse(f"${_BOXED}{boxed}}}$"))
        return list(self._parse(response)) if self.config.extract == "auto" else []

    def _read_answer(self, answer: str) -> list[Any]:
        boxed = last_boxed(answer)
        bare = answer if boxed is None else boxed
        found = list(self._parse(bare if "$" in bare else f"${bare}$")) or list(self._parse(bare))
        if not found:
            raise ValueError(f"the answer {answer!r:.80} is no expression that math-verify can read")
        return found


def last_boxed(text: str) -> str | None:
    r"""What the last complete `\boxed{...}` holds, inner braces included."""
    start = text.rfind(_BOXED)
    while start >= 0:
        depth = 1
        for end in range(start + len(_BOXED), len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if not depth:
                return text[start + len(_BOXED) : end]
        start = text.rfind(_BOXED, 0, start)
    return None

"""Why nothing is learned, told from the steps' metrics: a reward that never changes is trained on in vain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rlinf_cli.rl.trajectory import Sample

_LONGEST_TEXT = 60


class Diagnosis:
    """Is told of each step; then says what, in all of them, kept the policy from learning."""

    def __init__(self, max_new_tokens: int) -> None:
        self._max_new_tokens = max_new_tokens
        self.steps = 0
        """Told of so far."""
        self._lowest, self._highest = math.inf, -math.inf
        self._always = {"failed", "truncated", "flat", "idle", "unfit"}
        """What has been so in every step, see `_findings`."""
        self._example: Sample | None = None

    def add(self, metrics: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """A step's metrics and any of its samples."""
        self.steps += 1
        self._always &= _findings(metrics)
        self._lowest = min(self._lowest, metrics.get("reward/min", math.inf))
        self._highest = max(self._highest, metrics.get("reward/max", -math.inf))
        self._example = next((sample for sample in samples if sample.response or sample.error), self._example)

    def cause(self) -> str:
        """Why nothing can have been learned, in a sentence; empty when something may have been."""
        if not self.steps:
            return ""
        if "failed" in self._always:
            return f"no sample has had a reward{self._error()}"
        if "unfit" in self._always:
            return f"no example fits: each response is longer than rollout.max_new_tokens={self._max_new_tokens}"
        if self._lowest == self._highest:
            return f"every reward so far is {self._highest:g}: {self._constant()}"
        if {"flat", "idle"} <= self._always:
            return ("the samples of each prompt earn the same, so that nothing is learned from them: prompts that are "
                    "neither too easy nor too hard, or a larger rollout.group_size, make them differ")
        return ""

    def _constant(self) -> str:
        if "truncated" in self._always:
            return (f"all responses are cut off at rollout.max_new_tokens={self._max_new_tokens} before they end"
                    f"{self._shown()}")
        if self._highest > 0:
            return f"from equal rewards nothing is learned{self._shown()}"
        return f"no response is right, or the reward does not find what it looks for{self._shown()}"

    def _error(self) -> str:
        return f": {self._example.error}" if self._example is not None and self._example.error else ""

    def _shown(self) -> str:
        """One response beside its answer."""
        if self._example is None:
            return ""
        answer = "" if self._example.answer is None else f" where the answer is {_short(self._example.answer)}"
        return f" (one says {_short(self._example.response)}{answer})"


def _findings(metrics: Mapping[str, float]) -> set[str]:
    """What is so in this step: no reward at all, all responses cut off, equal rewards in each group, no gradient, no
    example (of supervised training) that is short enough."""
    idle = metrics.get("actor/skipped") == 1 or metrics.get("actor/grad_norm") == 0
    found = {
        "failed": "reward/errors" in metrics and "reward/mean" not in metrics,
        "truncated": metrics.get("rollout/response_len/clip_frac") == 1,
        "flat": metrics.get("reward/zero_std_frac") == 1,
        "idle": idle,
        "unfit": idle and metrics.get("rollout/left_out", 0) > 0,
    }
    return {name for name, holds in found.items() if holds}


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…")

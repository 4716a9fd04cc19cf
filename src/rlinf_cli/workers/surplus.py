"""Asking more prompts than are trained: how many, and what it does to the lengths of responses. Pure."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass


def asked(prompts: int, overprovision: float) -> int:
    """Prompts to ask so that `prompts` are answered early."""
    return math.ceil(round(prompts * (1 + overprovision), 6))


@dataclass(frozen=True)
class Surplus:
    """Responses of a step that were kept, and those that were dropped because enough others were there before."""

    kept: int = 0
    kept_tokens: int = 0
    dropped: int = 0
    begun: int = 0
    """Of those dropped, the ones that had tokens."""
    dropped_tokens: int = 0

    def __add__(self, other: Surplus) -> Surplus:
        return Surplus(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    def metrics(self) -> dict[str, float]:
        """`length_bias`: the mean length of what is kept, less that of all that were begun. A dropped response counts with
        the tokens that it had until then: it would have become longer, and the true value is lower."""
        kept, begun = max(1, self.kept), max(1, self.kept + self.begun)
        bias = self.kept_tokens / kept - (self.kept_tokens + self.dropped_tokens) / begun
        return {"rollout/overprovision/dropped": float(self.dropped),
                "rollout/overprovision/dropped_frac": self.dropped / max(1, self.kept + self.dropped),
                "rollout/overprovision/length_bias": bias if self.kept else 0.0}

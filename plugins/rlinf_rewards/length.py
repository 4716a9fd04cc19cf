"""reward = -clip(excess / tolerance, 0, 1), with excess = n - target (`at-most`) or |n - target| (`near`) for n tokens.

To be added to another reward: `reward.name=math + 0.2*length`. After Aggarwal & Welleck, "L1: Controlling How Long A
Reasoning Model Thinks With Reinforcement Learning" (arXiv 2503.04697), whose penalty is not bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlinf_rewards.config import LengthConfig

if TYPE_CHECKING:
    from rlinf_cli.api import Sample


class Length:
    """A penalty for responses that are too long, or not of a length."""

    isolated = False

    def __init__(self, config: LengthConfig) -> None:
        self.config = config

    def score(self, sample: Sample) -> float:
        """From -1 to 0."""
        excess = len(sample.response_ids) - self.config.target
        if self.config.mode == "near":
            excess = abs(excess)
        return -min(max(excess / self.config.tolerance, 0.0), 1.0)

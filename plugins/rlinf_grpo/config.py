"""Configuration keys of GRPO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlinf_cli.api import key


@dataclass(frozen=True)
class GRPOConfig:
    """Keys of `algorithm.name=grpo`."""

    clip_low: float = key(0.2, gt=0, le=1)
    """How far below 1 the ratio of new to old probability still has a gradient."""
    clip_high: float = key(0.28, gt=0)
    """How far above 1 it still has one; larger than `clip_low` keeps rare tokens alive (DAPO)."""
    normalize_std: bool = True
    """Divide advantages by the standard deviation of their group's rewards."""
    aggregation: str = key("token-mean", choices=("token-mean", "sequence-mean"))
    """`token-mean`: every token of an optimiser step counts the same. `sequence-mean`: every sample does."""

    def problems_with(self, config: Any) -> Iterator[str]:
        """What of the whole configuration does not go with GRPO, a sentence each."""
        if config.rollout.group_size < 2:
            yield (f"rollout.group_size is {config.rollout.group_size}, but GRPO compares the samples of a prompt with "
                   "each other: it must be at least 2")

"""Rewards are advantages: no sample needs another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rlinf_cli.api import Algorithm, LossInputs, Returns, SegmentReturns, SegmentTargets


class EmulatedAlgorithm(Algorithm):
    """See `rlinf_cli.api.Algorithm`."""

    per_group = True

    def __init__(self, config: Any) -> None:
        pass

    def advantages(self, returns: Returns) -> tuple[Tensor, Mapping[str, float]]:
        return returns.rewards, {}

    def loss(self, inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        return (inputs.weights * inputs.logprobs).sum(), {}

    def segment_advantages(self, returns: SegmentReturns) -> tuple[SegmentTargets, Mapping[str, float]]:
        return SegmentTargets(returns.rewards, returns.rewards, returns.known, {}), {}

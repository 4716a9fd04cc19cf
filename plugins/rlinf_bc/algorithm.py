"""Behaviour cloning: maximum likelihood of demonstrated actions, given what was observed.

    loss = -mean over transitions of the mean over an action's parts of log p(part)

Source: Pomerleau, "ALVINN" (1988), in the terms of today's policies. Deviations: none. The critic learns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlinf_cli.api import Algorithm, LossInputs, SegmentReturns, SegmentTargets


class BC(Algorithm):
    """See the formula above; contract: `rlinf_cli.api.Algorithm`."""

    supervised = True

    def segment_advantages(self, returns: SegmentReturns) -> tuple[SegmentTargets, Mapping[str, float]]:
        """Every demonstrated step is as good as any other."""
        ones = torch.ones_like(returns.rewards)
        return SegmentTargets(ones, torch.zeros_like(ones), ones > 0, {}), {}

    def loss(self, inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        loss = -(inputs.weights * inputs.logprobs).sum()
        return loss, {"actor/nll": loss.detach()}

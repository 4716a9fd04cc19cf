"""Supervised fine-tuning: maximum likelihood of the responses in the data, given their prompts.

    loss = -mean over tokens of log p(t)        `aggregation=sequence-mean`: mean over responses of the mean of their tokens

Prompt tokens are not learned. Deviations from the textbook: none.
"""

from __future__ import annotations

from torch import Tensor

from rlinf_cli.api import Algorithm, LossInputs
from rlinf_sft.config import SFTConfig


class SFT(Algorithm):
    """See the formula above; contract: `rlinf_cli.api.Algorithm`."""

    supervised = True

    def __init__(self, config: SFTConfig) -> None:
        super().__init__(config)
        self.aggregation = config.aggregation

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        loss = -(inputs.weights * inputs.logprobs).sum()
        return loss, {"actor/nll": loss.detach(),
                      "actor/target_prob": (inputs.weights * inputs.logprobs.detach().exp()).sum()}

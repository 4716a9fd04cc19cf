"""Group relative policy optimisation and its kin.

With every key at its default, for the G samples of one prompt, rewards r_1 .. r_G, and token t of sample i:

    A_i     = (r_i - mean(r)) / (std(r) + 1e-4)
    ratio_t = p_now(t) / p_sampled(t)
    loss    = -mean over tokens of min(ratio_t * A_i, clip(ratio_t, 1 - clip_low, 1 + clip_high) * A_i)

Source: DeepSeekMath (arXiv 2402.03300), section 4.1; two clip bounds and the mean over all tokens of a step: DAPO
(arXiv 2503.14476). The variants are in `advantages`, `loss` and `shaping`, each with its formula and source; a name such as
`dapo` is a preset of keys (`rlinf_grpo.VARIANTS`).

Deviations from DeepSeekMath: no KL term to a reference policy unless `kl_coef` is set; `token-mean` is the default, its
mean of sequence means is `aggregation=sequence-mean`; p_sampled is what the engine reported, not a second pass of the
trainer, unless `importance_cap` is set; std is the sample's (n - 1), and advantages are exactly 0 where all rewards of a
group are equal.
"""

from __future__ import annotations

from torch import Tensor

from rlinf_cli.api import Algorithm, LossInputs, Returns, SegmentReturns, SegmentTargets
from rlinf_grpo.advantages import step_advantages
from rlinf_grpo.config import GRPOConfig
from rlinf_grpo.episodes import episode_advantages
from rlinf_grpo.loss import policy_loss
from rlinf_grpo.shaping import chosen


class GRPO(Algorithm):
    """See the formula above; contract: `rlinf_cli.api.Algorithm`."""

    config: GRPOConfig

    def __init__(self, config: GRPOConfig) -> None:
        super().__init__(config)
        self.aggregation, self.rounds = config.aggregation, config.rounds
        self.needs_entropy, self.needs_reference = config.needs_entropy, config.needs_reference
        self.needs_recompute, self.per_group = config.needs_recompute, config.per_group

    def takes_part(self, returns: Returns) -> Tensor:
        return chosen(returns, self.config)

    def advantages(self, returns: Returns) -> tuple[Tensor, dict[str, float]]:
        return step_advantages(returns, self.config)

    def segment_advantages(self, returns: SegmentReturns) -> tuple[SegmentTargets, dict[str, float]]:
        return episode_advantages(returns, self.config), {}

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        return policy_loss(inputs, self.config)

"""Group relative policy optimisation.

For the G samples of one prompt, with rewards r_1 .. r_G, and token t of sample i:

    A_i     = (r_i - mean(r)) / (std(r) + 1e-4)
    ratio_t = p_now(t) / p_sampled(t)
    loss    = -mean over tokens of min(ratio_t * A_i, clip(ratio_t, 1 - clip_low, 1 + clip_high) * A_i)

Source: DeepSeekMath (arXiv 2402.03300), section 4.1; two clip bounds and the mean over all tokens of a step: DAPO
(arXiv 2503.14476).

Deviations from DeepSeekMath: no KL term to a reference policy; `token-mean` is the default, its mean of sequence means
is `aggregation=sequence-mean`; p_sampled is what the engine reported, not a second pass of the trainer; std is the
sample's (n - 1), and advantages are exactly 0 where all rewards of a group are equal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf_cli.api import Algorithm, LossInputs, Returns, clipped_surrogate, group_advantages
from rlinf_grpo.config import GRPOConfig


class GRPO(Algorithm):
    """See the formula above; contract: `rlinf_cli.api.Algorithm`."""

    def __init__(self, config: GRPOConfig) -> None:
        self.config = config
        self.aggregation = config.aggregation

    def advantages(self, returns: Returns) -> tuple[Tensor, dict[str, float]]:
        return group_advantages(returns.rewards, returns.groups, self.config.normalize_std), {}

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        surrogate = clipped_surrogate(inputs.logprobs, inputs.old_logprobs, inputs.advantages,
                                      self.config.clip_low, self.config.clip_high)
        log_ratio = inputs.logprobs.detach() - inputs.old_logprobs
        # KL(sampled || now) without bias and never negative: r - 1 - log r (Schulman's k3)
        kl = torch.expm1(log_ratio) - log_ratio
        metrics = {
            "actor/ratio": (inputs.weights * surrogate.ratio).sum(),
            "actor/clip_frac": (inputs.weights * surrogate.clipped).sum(),
            "actor/kl": (inputs.weights * kl).sum(),
        }
        return (inputs.weights * surrogate.losses).sum(), metrics

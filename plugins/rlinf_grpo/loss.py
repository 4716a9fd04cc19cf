"""The loss of a micro-batch: a sum over its tokens t, with the shares w_t that the aggregation gave them.

    ratio_t = p_now(t) / p_old(t)                     PPO (arXiv 1707.06347); ratio_level=sequence: the geometric mean over
                                                      the response, the same for all its tokens (GSPO, arXiv 2507.18071)
    policy  = -min(ratio_t * A_t, clip(ratio_t, 1 - clip_low, 1 + clip_high) * A_t)
              at most -dual_clip * A_t where A_t < 0  dual clip (arXiv 1912.09729)
    weight  = min(p_old(t) / p_sampled(t), importance_cap), or the product over the response; without gradient
              truncated importance sampling           Yao et al. (2025), "Your Efficient RL Framework Secretly Brings You
                                                      Off-Policy RL Training"; mode `mask` sets what is beyond to 0
    loss    = sum of w_t * (weight * policy + kl_coef * k(p_now, p_reference) - entropy_coef * entropy_t)

DeepSeekMath's KL in the loss (arXiv 2402.03300) is kl_estimator k3. clip_high above clip_low is DAPO's (arXiv 2503.14476).

Deviations: what `importance_mode=mask` leaves out still counts in the mean, since a token's share is settled before it is
known. The weight is on the policy's term only. RLOO (arXiv 2402.14740) and REINFORCE have no ratio: it is 1, and the
gradient theirs, in the first optimiser step on new samples; later ones are clipped as in PPO.
"""

from __future__ import annotations

from torch import Tensor

from rlinf_cli.api import KL_ESTIMATORS, LossInputs, clipped_surrogate, importance_weights
from rlinf_grpo.config import GRPOConfig


def policy_loss(inputs: LossInputs, config: GRPOConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """See the formula above; the metrics are weighted means of values that each token has."""
    losses, values = _surrogate(inputs, config)
    if config.importance_cap > 0:
        weights, found = _importance(inputs, config)
        losses, values = weights * losses, values | found
    if config.kl_coef > 0 and config.kl_in == "loss":
        assert inputs.reference_logprobs is not None, "the workflow has no reference role"
        losses = losses + config.kl_coef * KL_ESTIMATORS[config.estimator](inputs.logprobs, inputs.reference_logprobs)
        values["actor/reference_kl"] = KL_ESTIMATORS["k3"](inputs.logprobs.detach(), inputs.reference_logprobs)
    if config.entropy_coef > 0:
        assert inputs.entropy is not None
        losses = losses - config.entropy_coef * inputs.entropy
    return (inputs.weights * losses).sum(), {name: (inputs.weights * value).sum() for name, value in values.items()}


def _surrogate(inputs: LossInputs, config: GRPOConfig) -> tuple[Tensor, dict[str, Tensor]]:
    surrogate = clipped_surrogate(inputs.logprobs, inputs.old_logprobs, inputs.advantages, config.clip_low,
                                  config.clip_high, config.dual_clip or None,
                                  inputs.samples if config.ratio_level == "sequence" else None)
    return surrogate.losses, {
        "actor/ratio": surrogate.ratio,
        "actor/clip_frac": surrogate.clipped,
        "actor/clip_low_frac": surrogate.clipped_low,
        "actor/clip_high_frac": surrogate.clipped_high,
        "actor/kl": KL_ESTIMATORS["k3"](inputs.old_logprobs, inputs.logprobs.detach()),
    }


def _importance(inputs: LossInputs, config: GRPOConfig) -> tuple[Tensor, dict[str, Tensor]]:
    correction = importance_weights(inputs.old_logprobs, inputs.sampled_logprobs, config.importance_cap,
                                    config.importance_mode,
                                    inputs.samples if config.importance_level == "sequence" else None)
    return correction.weights, {
        "actor/importance/mean": correction.ratio,
        "actor/importance/clip_frac": correction.beyond,
        "actor/importance/kl": KL_ESTIMATORS["k3"](inputs.sampled_logprobs, inputs.old_logprobs),
    }

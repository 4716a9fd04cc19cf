"""Proximal policy optimisation: a critic values the text before each token, or what is observed before each action.

For the tokens t of a response with reward R, which the old policy gave, and values V_t of the text before each:

    r_t      = -kl_coef * (log p_old(t) - log p_reference(t)), and R more at the last token
    A_t, G_t = advantages and returns by GAE (gamma, gae_lambda), see `rlinf_cli.rl.gae`
    ratio_t  = p_now(t) / p_old(t)
    policy   = -min(ratio_t * A'_t, clip(ratio_t, 1 - clip_low, 1 + clip_high) * A'_t) - entropy_coef * entropy_t
               A' = A standardised over all tokens of the step (normalize_advantages)
    critic   = max((v_t - g_t)^2, (clip(v_t, old - value_clip, old + value_clip) - g_t)^2) / 2
               v = the critic's output, V = mean + spread * v, g = (G - mean) / spread: moments of all returns so far
               (normalize_values), those of the step included in g

Sources: PPO (arXiv 1707.06347); GAE (arXiv 1506.02438); KL in the reward with a weight that follows a target: Ziegler et al.
(arXiv 1909.08593); clipped values: OpenAI baselines; normalised values: Yu et al., MAPPO (arXiv 2103.01955), with plain
moments that forget (VALUE_DECAY) in place of debiased moving averages.

Policies of environments: a step of theirs is a token, r_t what the environment gave, and GAE stops where an episode ends,
with the value of the last observation where it was cut off. Policy and critic are then one model, whose loss is that of the
policy plus value_coef times that of the critic, and there is no reference model.

Deviations: policy and critic of language are two models with two optimisers, with no weight between their losses. Where
`target_kl` is passed, the optimiser step that passed it has been taken. The weight of the KL is adapted by the divergence of
whole responses, k1, of those that are trained. A response that was cut off at the length limit ends there: its reward is all
that it earns.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlinf_cli.api import (
    KL_ESTIMATORS,
    Algorithm,
    LossInputs,
    Returns,
    RunningMoments,
    SegmentReturns,
    SegmentTargets,
    ValueInputs,
    ValueTargets,
    adapted_coefficient,
    clipped_surrogate,
    clipped_value_loss,
    explained_variance,
    segment_gae,
    standardized,
    token_gae,
)
from rlinf_ppo.config import PPOConfig

VALUE_DECAY = 0.99
"""What returns of a step before count beside those of the next one."""
KL_COEF = "kl_coef"
"""Of `state`: the weight of the divergence in the next step. The other names there are those of the moments."""


class PPO(Algorithm):
    """See the formulas above; contract: `rlinf_cli.api.Algorithm`."""

    config: PPOConfig
    needs_critic = True
    learns_values = True

    def __init__(self, config: PPOConfig) -> None:
        super().__init__(config)
        self.aggregation, self.per_group = config.aggregation, config.per_group
        self.needs_entropy, self.needs_reference = config.needs_entropy, config.needs_reference
        self.value_coef = config.value_coef
        self.state = {KL_COEF: config.kl_coef, **RunningMoments().to_dict()}

    def advantages(self, returns: Returns) -> tuple[Tensor, dict[str, float]]:
        advantages, _ = self._gae(returns)
        metrics = {}
        if returns.reference_logprobs is not None:
            metrics["actor/reference_kl"] = KL_ESTIMATORS["k3"](returns.logprobs, returns.reference_logprobs).mean().item()
            metrics["actor/response_kl"] = response_divergence(returns)
            metrics["actor/kl_coef"] = self.state[KL_COEF]
        return standardized(advantages) if self.config.normalize_advantages else advantages, metrics

    def loss(self, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        surrogate = clipped_surrogate(inputs.logprobs, inputs.old_logprobs, inputs.advantages, self.config.clip_low,
                                      self.config.clip_high)
        losses = surrogate.losses
        if inputs.entropy is not None:
            losses = losses - self.config.entropy_coef * inputs.entropy
        values = {"actor/ratio": surrogate.ratio, "actor/clip_frac": surrogate.clipped,
                  "actor/clip_low_frac": surrogate.clipped_low, "actor/clip_high_frac": surrogate.clipped_high,
                  "actor/kl": KL_ESTIMATORS["k3"](inputs.old_logprobs, inputs.logprobs.detach())}
        return (inputs.weights * losses).sum(), {name: (inputs.weights * value).sum() for name, value in values.items()}

    def enough(self, metrics: Mapping[str, float]) -> bool:
        return 0 < self.config.target_kl < metrics["actor/kl"]

    def values(self, outputs: Tensor) -> Tensor:
        return self._moments.denormalize(outputs) if self.config.normalize_values else outputs

    def value_targets(self, returns: Returns) -> tuple[ValueTargets, dict[str, float]]:
        assert returns.values is not None, "the workflow has no critic role"
        _, targets = self._gae(returns)
        metrics = _value_metrics(returns.values, targets)
        if not self.config.normalize_values:
            return ValueTargets(returns.values, targets), metrics
        after = self._moments.updated(targets, VALUE_DECAY)
        return ValueTargets(self._moments.normalize(returns.values), after.normalize(targets)), metrics

    def value_loss(self, inputs: ValueInputs) -> tuple[Tensor, dict[str, Tensor]]:
        losses, held = clipped_value_loss(inputs.values, inputs.old_values, inputs.targets, self.config.value_clip)
        return (inputs.weights * losses).sum(), {"critic/clip_frac": (inputs.weights * held).sum()}

    def next_state(self, returns: Returns) -> dict[str, float]:
        _, targets = self._gae(returns)
        return {KL_COEF: self._next_coefficient(returns), **self._moments.updated(targets, VALUE_DECAY).to_dict()}

    def segment_advantages(self, returns: SegmentReturns) -> tuple[SegmentTargets, dict[str, float]]:
        values, known = self.values(returns.outputs), returns.known
        advantages, targets = segment_gae(returns.rewards, values, returns.terminated, returns.truncated,
                                          self.values(returns.final_outputs), self.values(returns.last_outputs),
                                          self.config.gamma, self.config.gae_lambda)
        metrics = _value_metrics(values[known], targets[known]) if known.any() else {}
        if self.config.normalize_advantages and known.any():
            advantages[known] = standardized(advantages[known])
        after = self._moments.updated(targets[known], VALUE_DECAY)
        learned = after.normalize(targets) if self.config.normalize_values else targets
        return SegmentTargets(advantages, learned, known, {**self.state, **after.to_dict()}), metrics

    @property
    def _moments(self) -> RunningMoments:
        return RunningMoments.of({name: value for name, value in self.state.items() if name != KL_COEF})

    def _gae(self, returns: Returns) -> tuple[Tensor, Tensor]:
        assert returns.values is not None, "the workflow has no critic role"
        return token_gae(token_rewards(returns, self.state[KL_COEF]), returns.values, returns.lengths, self.config.gamma,
                         self.config.gae_lambda)

    def _next_coefficient(self, returns: Returns) -> float:
        coefficient, target = self.state[KL_COEF], self.config.kl_target
        if not target or returns.reference_logprobs is None:
            return coefficient
        return adapted_coefficient(coefficient, response_divergence(returns), target, len(returns.rewards),
                                   self.config.kl_horizon)


def _value_metrics(values: Tensor, targets: Tensor) -> dict[str, float]:
    return {"critic/explained_variance": explained_variance(values, targets), "critic/value/mean": values.mean().item(),
            "critic/return/mean": targets.mean().item()}


def response_divergence(returns: Returns) -> float:
    """Mean over the responses of their divergence from the reference model: k1, summed over their tokens (nats)."""
    assert returns.reference_logprobs is not None, "the workflow has no reference role"
    return KL_ESTIMATORS["k1"](returns.logprobs, returns.reference_logprobs).double().sum().item() / len(returns.rewards)


def token_rewards(returns: Returns, kl_coef: float) -> Tensor:
    """What each trained token earned, float64 [N]: less for leaving the reference model, and the sample's reward at its last."""
    rewards = torch.zeros(len(returns.logprobs), dtype=torch.float64)
    if returns.reference_logprobs is not None:
        rewards -= kl_coef * KL_ESTIMATORS["k1"](returns.logprobs, returns.reference_logprobs).double()
    rewards[returns.lengths.cumsum(0) - 1] += returns.rewards.double()
    return rewards

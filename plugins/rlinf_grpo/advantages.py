"""Advantages of a step's samples.

For sample i, with reward R_i, among the n samples of its prompt:

    baseline       group          b_i = mean of the group's R                     DeepSeekMath (arXiv 2402.03300)
                   leave-one-out  b_i = mean of the group's R without R_i         RLOO (arXiv 2402.14740)
                   none           b_i = 0                                         REINFORCE++ (arXiv 2501.03262)
    normalize      group          A_i = (R_i - b_i) / (std of the group's R + 1e-4)
                   none           A_i = R_i - b_i                                 Dr. GRPO (arXiv 2503.20783), RLOO
                   batch          A_t = (a_t - mean(a)) / (std(a) + 1e-4) over all tokens t of the step, where
                                  a_t = R_i - b_i - kl_coef * (k_t + k_t+1 + ... to the end of the sample)
    kl_in=reward   with group or none, R_i is the reward minus kl_coef * (sum of k over the sample)

k_t estimates, from what was sampled, the divergence from the reference model at token t. REINFORCE++ is baseline none
with batch: with gamma = 1 the return of a token is the reward less the divergence still to come. Its variant for several
samples a prompt, REINFORCE++-baseline, is baseline group with batch.

Deviations: std of a group is the sample's (n - 1); 1e-4 is added to every std, so that rounding is never blown up to the
size of a reward; advantages are exactly 0 where all rewards of a group (`batch`: all values of the step) are equal.
REINFORCE++'s clipping of rewards to a range is left out.
"""

from __future__ import annotations

from torch import Tensor

from rlinf_cli.api import KL_ESTIMATORS, Returns, group_advantages, sample_sums, standardized, sums_to_go
from rlinf_grpo.config import GRPOConfig
from rlinf_grpo.shaping import overlong_punishment


def step_advantages(returns: Returns, config: GRPOConfig) -> tuple[Tensor, dict[str, float]]:
    """float32 [B], with `normalize=batch` [N]; and metrics of the step."""
    rewards, metrics = returns.rewards.double(), {}
    if config.overlong_buffer > 0:
        punishment = config.overlong_penalty * overlong_punishment(returns.lengths, returns.longest, config.overlong_buffer)
        rewards = rewards + punishment
        metrics["actor/overlong_penalty"] = -punishment.mean().item()
    penalty = None
    if config.kl_coef > 0 and config.kl_in == "reward":
        penalty = config.kl_coef * _divergence(returns, config.estimator)
        metrics["actor/reference_kl"] = _divergence(returns, "k3").mean().item()
    if config.normalize == "batch":
        return _over_all_tokens(rewards, penalty, returns, config), metrics
    if penalty is not None:
        rewards = rewards - sample_sums(penalty, returns.lengths)
    return group_advantages(rewards, returns.groups, normalize_std=config.normalize == "group",
                            leave_one_out=config.baseline == "leave-one-out"), metrics


def _over_all_tokens(rewards: Tensor, penalty: Tensor | None, returns: Returns, config: GRPOConfig) -> Tensor:
    if config.baseline != "none":
        rewards = group_advantages(rewards, returns.groups, normalize_std=False,
                                   leave_one_out=config.baseline == "leave-one-out")
    values = rewards.repeat_interleave(returns.lengths)
    if penalty is not None:
        values = values - sums_to_go(penalty, returns.lengths)
    return standardized(values)


def _divergence(returns: Returns, estimator: str) -> Tensor:
    """From the reference model, of each token as it was sampled, float32 [N]."""
    assert returns.reference_logprobs is not None, "the workflow has no reference role"
    return KL_ESTIMATORS[estimator](returns.logprobs, returns.reference_logprobs)

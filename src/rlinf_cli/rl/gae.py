"""Generalised advantage estimation (Schulman et al., arXiv 1506.02438).

    delta_t  = r_t + gamma * V(s_t+1) - V(s_t)
    A_t      = delta_t + gamma * lambda * A_t+1
    return_t = A_t + V(s_t)                            what a critic learns: the lambda-return

An episode that has terminated has no value left: V(s_t+1) = 0. One that was cut off (truncated) goes on unseen: V(s_t+1) is
the value of the observation that it was cut off at. Either way nothing of the next episode reaches the one before.

Sums are taken in float64, results are float32.
"""

from __future__ import annotations

import torch
from torch import Tensor


def token_gae(rewards: Tensor, values: Tensor, lengths: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages and returns of tokens laid end to end, sample by sample: each sample is an episode that terminates with its
    last token.

    `rewards`, `values` [N]: what a token earned, and the value of the text before it · `lengths` int64 [B], their sum is N.
    Tokens that are not the policy's own (masked ones) are left out by the caller: they belong to what the environment does
    between two actions. Two float32 [N].
    """
    if not len(rewards):
        return rewards.float(), values.float()
    step, longest = _places(lengths), int(lengths.max())
    padded = rewards.new_zeros((longest, len(lengths)), dtype=torch.float64)
    own = torch.zeros_like(padded)
    padded[step], own[step] = rewards.double(), values.double()
    after = torch.cat([own[1:], own.new_zeros(1, len(lengths))])
    # beyond the end of a sample rewards and values are 0, and so are the advantages there
    advantages = _backward(padded + gamma * after - own, torch.full_like(own, gamma * lam))[step]
    return advantages.float(), (advantages + values.double()).float()


def segment_gae(rewards: Tensor, values: Tensor, terminated: Tensor, truncated: Tensor, final_values: Tensor,
                last_values: Tensor, gamma: float, lam: float) -> tuple[Tensor, Tensor]:
    """Advantages and returns of T steps of E environments, in which episodes end and begin; two float32 [T, E].

    `rewards` [T, E] · `values` [T, E]: of the observations that were acted on · `terminated`, `truncated` bool [T, E]: whether
    the episode ended with that step, or was cut off after it; termination counts where both are true · `final_values` [T, E]:
    of the observation that a truncated episode was cut off at, read nowhere else (it may be NaN there) · `last_values` [E]: of
    the observation after the last step, read where the last step has ended no episode.
    """
    after = torch.cat([values[1:], last_values[None]]).double()
    after = torch.where(truncated, final_values.double(), after).masked_fill(terminated, 0.0)
    deltas = rewards.double() + gamma * after - values.double()
    goes_on = (~(terminated | truncated)).double()
    advantages = _backward(deltas, gamma * lam * goes_on)
    return advantages.float(), (advantages + values.double()).float()


def _backward(deltas: Tensor, decays: Tensor) -> Tensor:
    """`A_t = deltas_t + decays_t * A_t+1` over the first axis."""
    advantages = torch.empty_like(deltas)
    ahead = torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        ahead = advantages[t] = deltas[t] + decays[t] * ahead
    return advantages


def _places(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(step, sample) of each token."""
    sample = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    return torch.arange(len(sample), device=lengths.device) - first, sample

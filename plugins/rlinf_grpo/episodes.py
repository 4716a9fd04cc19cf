"""Advantages of environments' episodes: those from the same initial state are a group, as the samples of a prompt are.

R_i is the sum of an episode's rewards, undiscounted, and all its steps share its advantage; the formulas are those of
`advantages`, with steps for tokens. Only episodes that have ended are trained: what another one will earn is not known yet. Its
steps are lost where it goes on beyond the step, so that steps should be as long as episodes, or a multiple.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf_cli.api import SegmentReturns, SegmentTargets, differing, group_advantages, standardized
from rlinf_grpo.config import GRPOConfig


def episode_advantages(returns: SegmentReturns, config: GRPOConfig) -> SegmentTargets:
    """Of each row that belongs to an episode that has ended and is wholly known."""
    usable = _usable(returns)
    values = torch.zeros_like(returns.returns, dtype=torch.float32)
    values[usable] = _relative(returns.returns[usable], returns.groups[usable], config)
    if config.drops_equal:
        usable[usable.clone()] = differing(returns.returns[usable], returns.groups[usable])
    trained = returns.episodes >= 0
    trained[trained.clone()] = usable[returns.episodes[trained]]
    advantages = torch.zeros_like(returns.rewards)
    advantages[trained] = values[returns.episodes[trained]]
    if config.normalize == "batch":
        advantages[trained] = standardized(advantages[trained])
    return SegmentTargets(advantages, torch.zeros_like(advantages), trained, {})


def _usable(returns: SegmentReturns) -> Tensor:
    """bool [P]: episodes whose return is a number and of which no row is unknown."""
    usable = returns.returns.isfinite()
    unknown = returns.episodes[~returns.known]
    usable[unknown[unknown >= 0]] = False
    return usable


def _relative(returns: Tensor, groups: Tensor, config: GRPOConfig) -> Tensor:
    if config.baseline == "none":
        return returns.float()
    return group_advantages(returns, groups, normalize_std=config.normalize == "group",
                            leave_one_out=config.baseline == "leave-one-out")

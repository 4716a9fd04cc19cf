"""How actions are drawn from features, and how likely they were.

    Gaussian      u = mean(features) + exp(log_std) * noise,  log p = sum over dimensions of log N(u; mean, std)
    categorical   the first action whose cumulated probability exceeds Phi(noise), the normal distribution's own

Both are functions of standard normal noise. The log-probability of a continuous action is that of u, before it is cut off or
squashed into its bounds: what is done to u afterwards changes no ratio of probabilities, and no gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from gymnasium.spaces import Box, Discrete, Space
from torch import Tensor, nn

SMALL_GAIN = 0.01
"""Of the layer that actions come from: they hardly depend on the observation at first."""

LARGEST_SHARE = 1 - 2**-22
"""Of a whole: in float32 any number times this is less than it."""

NEAR_BOUND = 0.99
"""Of 1: the furthest that a squashed action is taken to have been drawn."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Actions of E environments, as in `Acted`."""

    actions: Tensor
    sampled: Tensor
    logprobs: Tensor


def linear(inputs: int, outputs: int, gain: float = math.sqrt(2)) -> nn.Linear:
    """Orthogonal weights, no bias at first."""
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def keep_bounds(module: nn.Module, space: Box) -> None:
    """As buffers `low` and `high`, float32 [D], which are not saved."""
    for name, bound in ("low", space.low), ("high", space.high):
        module.register_buffer(name, torch.from_numpy(bound.reshape(-1).astype("float32")), persistent=False)


def head(features: int, space: Space[Any], log_std: float, squash: bool) -> Gaussian | Categorical:
    """For a `Box` or a `Discrete`."""
    if isinstance(space, Discrete):
        return Categorical(features, int(space.n), int(space.start))
    assert isinstance(space, Box)
    return Gaussian(features, space, log_std, squash)


class Gaussian(nn.Module):
    """Continuous actions; the standard deviation does not depend on the observation."""

    low: Tensor
    high: Tensor

    def __init__(self, features: int, space: Box, log_std: float, squash: bool) -> None:
        super().__init__()
        self._shape, self._squash = space.shape, squash
        self.noise_size = math.prod(space.shape)
        self.mean = linear(features, self.noise_size, SMALL_GAIN)
        self.log_std = nn.Parameter(torch.full((self.noise_size,), log_std))
        keep_bounds(self, space)

    def draw(self, features: Tensor, noise: Tensor, deterministic: bool) -> Drawn:
        mean = self.mean.forward(features)
        sampled = mean if deterministic else mean + self.log_std.exp() * noise
        return Drawn(self._bounded(sampled).reshape(-1, *self._shape), sampled, self._logprob(mean, sampled))

    def judge(self, features: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, [N, 1] each; the entropy is that of u."""
        entropy = (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum()
        return self._logprob(self.mean(features), sampled), entropy.expand(len(sampled), 1)

    def drawn(self, actions: Tensor) -> Tensor:
        """The u that becomes of each; of one at a bound that a tanh only comes near to, a u that is near it."""
        u = actions.reshape(len(actions), -1).float()
        if not self._squash:
            return u
        return ((u - self.low) / (self.high - self.low) * 2 - 1).clamp(-NEAR_BOUND, NEAR_BOUND).atanh()

    def _logprob(self, mean: Tensor, sampled: Tensor) -> Tensor:
        scaled = (sampled - mean) * (-self.log_std).exp()
        constant = self.log_std.sum() + 0.5 * math.log(2 * math.pi) * self.noise_size
        return -0.5 * scaled.square().sum(1, keepdim=True) - constant

    def _bounded(self, u: Tensor) -> Tensor:
        if self._squash:
            return self.low + (u.tanh() + 1) / 2 * (self.high - self.low)
        return u.clamp(self.low, self.high)


class Categorical(nn.Module):
    """One of n actions, numbered from `start`."""

    noise_size = 1

    def __init__(self, features: int, count: int, start: int) -> None:
        super().__init__()
        self._start = start
        self.logits = linear(features, count, SMALL_GAIN)

    def draw(self, features: Tensor, noise: Tensor, deterministic: bool) -> Drawn:
        distribution = torch.log_softmax(self.logits.forward(features), 1)
        index = distribution.argmax(1) if deterministic else choose(distribution, noise[:, 0])
        return Drawn(index + self._start, index, distribution.gather(1, index[:, None]))

    def drawn(self, actions: Tensor) -> Tensor:
        """Their numbers, from 0."""
        return actions.long() - self._start

    def judge(self, features: Tensor, sampled: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability and entropy, [N, 1] each."""
        distribution = torch.log_softmax(self.logits(features), 1)
        entropy = -(distribution.exp() * distribution).sum(1, keepdim=True)
        return distribution.gather(1, sampled[:, None]), entropy


def choose(distribution: Tensor, noise: Tensor) -> Tensor:
    """An index for each row of log-probabilities [N, n], by standard normal noise [N]; int64 [N]."""
    cumulated = distribution.exp().cumsum(1)
    # less than 1: what is beyond the last possible one is impossible
    below = torch.special.ndtr(noise)[:, None].clamp(max=LARGEST_SHARE) * cumulated[:, -1:]
    return torch.searchsorted(cumulated, below, right=True)[:, 0]

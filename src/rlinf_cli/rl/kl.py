"""Estimators of how far a policy p is from a reference q, from tokens drawn from p: one value a token.

    d  = log p(token) - log q(token)
    k1 = d                    mean over p: KL(p || q); often negative, much noise
    k2 = d^2 / 2              never negative, little noise, biased (to third order in d)
    k3 = exp(-d) - 1 + d      mean over p: KL(p || q); never negative, less noise than k1

Source: J. Schulman, "Approximating KL Divergence" (2020), for the values; Tang and Munos (arXiv 2506.09477) for the
gradients. A value that is right does not make its gradient right. At a token drawn from p, in expectation:

    as a term of the loss      k1: zero          k2: gradient of KL(p || q)     k3: gradient of KL(q || p)
    subtracted from the reward k1: gradient of KL(p || q)          k2, k3: biased
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Estimator = Callable[[Tensor, Tensor], Tensor]
"""`(logprobs, reference) -> values`, all float [N], in nats, differentiable."""


def k1(logprobs: Tensor, reference: Tensor) -> Tensor:
    """`d`. Its gradient as a loss is zero in expectation: only for a reward."""
    return logprobs - reference


def k2(logprobs: Tensor, reference: Tensor) -> Tensor:
    """`d^2 / 2`. As a loss its gradient is, in expectation, that of KL(p || q), the reverse divergence."""
    return (logprobs - reference).square() / 2


def k3(logprobs: Tensor, reference: Tensor) -> Tensor:
    """`exp(-d) - 1 + d`. The value has no bias; as a loss its gradient is that of KL(q || p), the forward divergence."""
    return torch.expm1(reference - logprobs) + logprobs - reference


KL_ESTIMATORS: Mapping[str, Estimator] = {"k1": k1, "k2": k2, "k3": k3}


def adapted_coefficient(coefficient: float, divergence: float, target: float, samples: int, horizon: float) -> float:
    """The weight of the divergence for the next step, after one of `samples` samples whose mean divergence (nats, of whole
    responses) was `divergence`: larger when that is over `target`, smaller when it is under it.

        coefficient * (1 + clip(divergence / target - 1, -0.2, 0.2) * samples / horizon)

    Source: Ziegler et al., "Fine-Tuning Language Models from Human Preferences" (arXiv 1909.08593), section 2.2. Where more
    samples come at once than `horizon`, they count as so many, so that the weight stays positive.
    """
    error = min(max(divergence / target - 1, -0.2), 0.2)
    return coefficient * (1 + error * min(1.0, samples / horizon))

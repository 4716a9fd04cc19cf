"""Lengths of responses: those of another batch than the one that was measured, and those of assumed distributions.

A batch is made of evenly spaced quantiles, so that it has the distribution's mean and tail whatever its size; a seed says in
which order they come. What is the same as before is therefore the same to the last token.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


def resample(lengths: Ints, samples: int, seed: int = 0, group: int = 1) -> Ints:
    """A batch of so many samples like the measured one, [samples]. Of the same size: the measured one itself.

    `group`: measured responses of a prompt, which stay together where both sizes are multiples of it: hard prompts have long
    responses only, which makes groups end later. Raises ValueError where nothing was measured.
    """
    if not len(lengths):
        raise ValueError("no response was measured: lengths of a batch need at least one")
    if len(lengths) == samples:
        return lengths
    together = group if len(lengths) % group == 0 and samples % group == 0 else 1
    units = lengths.reshape(-1, together)
    ordered = units[np.argsort(units.sum(axis=1), kind="stable")]
    count = samples // together
    picked = ((np.arange(count) + 0.5) * len(ordered) / count).astype(np.int64)
    batch: Ints = ordered[np.random.default_rng(seed).permutation(picked)].ravel()
    return batch


def quantiles(lengths: Ints, shares: Floats | tuple[float, ...]) -> Floats:
    """Lengths that such shares of the responses do not exceed, [as `shares`]; straight between measured ones."""
    found: Floats = np.quantile(lengths, np.asarray(shares, np.float64))
    return found


def capped(lengths: Ints, max_new_tokens: int) -> tuple[Ints, float]:
    """Responses that are cut there, and the share of those that are; 0 tokens is no limit."""
    if max_new_tokens == 0:
        return lengths, 0.0
    return np.minimum(lengths, max_new_tokens), float(np.mean(lengths >= max_new_tokens))


def warning(lengths: Ints, max_new_tokens: int) -> str:
    """What a reader must know when responses longer than the measured ones are allowed, else empty."""
    longest = int(lengths.max())
    at_end = int(np.sum(lengths == longest))
    if max_new_tokens <= longest or at_end < 2:
        return ""
    return (f"lengths are extrapolated: up to {max_new_tokens} tokens are allowed, {at_end / len(lengths) * 100:.0f} % of the "
            f"measured responses ended at {longest}, and how far they would have gone on is unknown; they are taken to end there")


def constant(tokens: int, samples: int) -> Ints:
    return np.full(samples, tokens, np.int64)


def lognormal(mean: float, sigma: float, samples: int, max_new_tokens: int = 0, seed: int = 0) -> Ints:
    """Lengths whose logarithm has standard deviation `sigma`; `mean` is that of the lengths before they are cut."""
    normal = NormalDist()
    scores = np.array([normal.inv_cdf(share) for share in _middles(samples).tolist()])
    return _batch(mean * np.exp(sigma * scores - sigma**2 / 2), max_new_tokens, seed)


def pareto(least: float, alpha: float, samples: int, max_new_tokens: int = 0, seed: int = 0) -> Ints:
    """A share (least / t) ** alpha of the responses is longer than t tokens: the heavier the tail, the smaller `alpha`."""
    return _batch(least * (1 - _middles(samples)) ** (-1 / alpha), max_new_tokens, seed)


def _middles(samples: int) -> Floats:
    """The middles of equal parts of the distribution."""
    shares: Floats = (np.arange(samples) + 0.5) / samples
    return shares


def _batch(lengths: Floats, max_new_tokens: int, seed: int) -> Ints:
    whole = np.maximum(lengths.round().astype(np.int64), 1)
    return np.random.default_rng(seed).permutation(capped(whole, max_new_tokens)[0])

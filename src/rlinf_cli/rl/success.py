"""How often a policy succeeds, and how well that is known: n prompts, k responses to each, of which some succeed.

    mean@k = sum(c) / (n k)                                        c: successes of a prompt
    pass@j = mean(1 - C(k - c, j) / C(k, j))                       j <= k: at least one success among j responses

pass@j is the unbiased estimator of "Evaluating Large Language Models Trained on Code" (arXiv 2107.03374). Intervals are
Wilson's (1927), on the number of independent trials that the responses are worth: those to one prompt tell less than as
many to different ones, since they succeed together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

Interval = tuple[float, float]
"""Lower and upper limit."""

CONFIDENCE = 0.95


def mean_at(k: int, successes: Sequence[int]) -> float:
    """Share of all responses that succeed. `successes`: of the k responses to each prompt."""
    return sum(successes) / (k * len(successes))


def pass_at(j: int, k: int, successes: Sequence[int]) -> float:
    """Probability that at least one of j responses (1 <= j <= k) to a prompt succeeds, mean over the prompts."""
    ways = math.comb(k, j)
    return sum(1 - math.comb(k - c, j) / ways for c in successes) / len(successes)


def mean_interval(k: int, successes: Sequence[int]) -> Interval:
    """Where mean@k lies for all prompts of the kind, with probability CONFIDENCE."""
    return wilson(mean_at(k, successes), independent_trials(k, successes))


def pass_interval(k: int, successes: Sequence[int]) -> Interval:
    """The same for pass@k: each prompt is one trial."""
    return wilson(pass_at(k, k, successes), len(successes))


def independent_trials(k: int, successes: Sequence[int]) -> float:
    """Independent trials that would know the rate as well as the n k responses do: p (1 - p) over the variance that the
    prompts' own rates show; at least n (all responses to a prompt alike) and at most n k (unrelated).

    With one response a prompt it is n, and where all or none succeed too: how alike responses are is not known then.
    """
    n, p = len(successes), mean_at(k, successes)
    if k == 1 or n == 1 or p in (0.0, 1.0):
        return n
    variance = sum((c / k - p) ** 2 for c in successes) / (n * (n - 1))
    return n * k if variance == 0 else min(n * k, max(n, p * (1 - p) / variance))


def wilson(rate: float, trials: float, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a probability that was seen as `rate` in so many independent trials."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    centre, spread = rate + z * z / (2 * trials), z * math.sqrt(rate * (1 - rate) / trials + (z / (2 * trials)) ** 2)
    scale = 1 + z * z / trials
    # rounding would otherwise pass the limits that rates near 0 and 1 have
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)

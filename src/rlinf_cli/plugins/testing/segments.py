"""Experience of an imaginary environment, for checks of algorithms, policies and trainers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.api import Episode, Segment


def make_segment(steps: int = 12, environments: int = 6, seed: int = 0, first: int = 0, actions: int = 2) -> Segment:
    """Random numbers in the form of experience: `steps` of so many environments, numbered from `first`, which show 4 numbers and
    take `actions` of them. Episodes end within it, some of them cut off, and others go on beyond it."""
    noise = np.random.default_rng([seed, first])
    shape = steps, environments

    def draw(*more: int) -> NDArray[np.float32]:
        drawn: NDArray[np.float32] = noise.standard_normal((*shape, *more)).astype(np.float32)
        return drawn

    ends, cut = noise.random(shape) < 0.2, noise.random(shape) < 0.5
    numbers = np.concatenate([np.zeros((1, environments), np.int64), ends[:-1].cumsum(0)])
    segment = Segment(
        observations=draw(4), sampled=draw(actions), logprobs=draw(1) - actions,
        values=noise.standard_normal((steps + 1, environments)).astype(np.float32), rewards=draw(), terminated=ends & ~cut,
        truncated=ends & cut, final_values=np.where(ends & cut, draw(), np.float32(0)), versions=np.zeros(shape, np.int32),
        episode_ids=numbers, environments=first + np.arange(environments), lost=np.zeros(shape, np.bool_))
    segment.episodes.extend(_episode(segment, int(t), int(e)) for t, e in zip(*np.nonzero(ends)))
    return segment


def _episode(segment: Segment, t: int, e: int) -> Episode:
    """The one that ends there; environments 2 i and 2 i + 1 begin alike."""
    environment, number = int(segment.environments[e]), int(segment.episode_ids[t, e])
    own: Any = segment.episode_ids[:, e] == number
    return Episode(id=f"{environment}/{number}", environment=environment, number=number, group=f"{environment // 2}/{number}",
                   task="", seed=number, state=-1, returned=float(segment.rewards[own, e].sum()), length=int(own.sum()),
                   success=None, truncated=bool(segment.truncated[t, e]))

"""Noise of a policy's actions as a function of (seed, environment, episode, step): the same wherever an action is drawn.

The numbers of an episode are the SplitMix64 stream (Steele, Lea and Flood, OOPSLA 2014) that starts at the episode's key, of
which each step has so many; uniform numbers become normal ones by the inverse of their distribution.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS = 48


def episode_keys(seed: int, environments: NDArray[np.int64], episodes: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 bits that stand for a run's seed, an environment of it, and an episode of that, [E]; the latter two at least 0."""
    keys = _mixed(np.full(environments.shape, seed, np.uint64) + _STEP)
    keys = _mixed((keys ^ environments.astype(np.uint64)) + _STEP)
    return _mixed((keys ^ episodes.astype(np.uint64)) + _STEP)


def action_noise(keys: NDArray[np.uint64], steps: NDArray[np.int64], size: int) -> NDArray[np.float32]:
    """Standard normal numbers for step `steps` [E] of the episodes with those keys [E]; float32 [E, size]."""
    places = steps.astype(np.uint64)[:, None] * np.uint64(size) + np.arange(1, size + 1, dtype=np.uint64)
    uniform = ((_mixed(keys[:, None] + places * _STEP) >> np.uint64(64 - _BITS)).astype(np.float64) + 0.5) * 2.0**-_BITS
    normal: NDArray[np.float32] = torch.special.ndtri(torch.from_numpy(uniform)).float().numpy()
    return normal


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed

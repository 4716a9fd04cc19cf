"""Sampling noise as a function of (seed, request id, position): the same wherever and whenever a token is drawn.

A request's key is a BLAKE2b hash of seed and id. Its uniform numbers are the SplitMix64 stream that starts at the key
(Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014), addressed by position.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS = 48
"""Bits that are used: few enough that a uniform number times a probability mass never rounds up to the mass."""


def request_key(seed: int, request_id: str) -> int:
    """64 bits that stand for (seed, id)."""
    return int.from_bytes(blake2b(f"{seed}/{request_id}".encode(), digest_size=8).digest(), "little")


def uniforms(keys: NDArray[np.uint64], positions: NDArray[np.uint64]) -> NDArray[np.float64]:
    """One number in (0, 1), both ends excluded, for each pair of key and position."""
    mixed = keys + (positions + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    drawn: NDArray[np.float64] = ((mixed >> np.uint64(64 - _BITS)).astype(np.float64) + 0.5) * 2.0**-_BITS
    return drawn

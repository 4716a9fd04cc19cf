"""How long emulated responses are: a function of the request's id, so that every mode sees the same ones."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

from rlinf_cli.api import key

CAP = 20.0
"""Longest response, in mean lengths."""
TOKENS = 12
"""Tokens of a response of mean length."""


@dataclass(frozen=True)
class EmulatedEngineConfig:
    """An engine that sleeps."""

    slots: int = key(8, ge=1)
    """Responses that are made at the same time."""
    unit_s: float = key(0.1, gt=0)
    """Seconds that a response of mean length takes."""
    lengths: str = key("constant", choices=("constant", "lognormal", "pareto"))
    """Distribution of the lengths: constant, lognormal with sigma 1, or Pareto with exponent 1.5; mean 1, at most 20."""
    onset: int = key(0, ge=0)
    """Version of the weights from which on lengths are those; those of earlier ones are constant."""
    draw: int = key(0, ge=0)
    """Which lengths of the distribution: another number, others."""
    crowding: float = key(0.0, ge=0)
    """How much longer a decode step takes with all slots active than with one: 1 is twice as long."""
    move_s: float = key(0.0, ge=0)
    """Seconds to make room for another role, and to come back."""


@dataclass(frozen=True)
class EmulatedTrainerConfig:
    """A trainer that sleeps."""

    unit_s: float = key(0.0125, gt=0)
    """Seconds that a response of mean length takes to train."""
    weights: int = key(1000, ge=1)
    """Numbers that it publishes."""
    transition_s: float = key(0.0, ge=0)
    """Seconds that an action in an environment takes to train, on one rank."""
    score_s: float = key(0.0, ge=0)
    """Seconds to compute the log-probabilities of a response of mean length."""
    move_s: float = key(0.0, ge=0)
    """Seconds to make room for another role, and to come back."""

    @property
    def trains_policies(self) -> bool:
        return True


@dataclass(frozen=True)
class EmulatedEnvironmentConfig:
    """A simulator that sleeps."""

    step_s: float = key(0.02, ge=0)
    """Seconds of a step, whatever the number of environments in a process."""
    each_s: float = key(0.0, ge=0)
    """And for each of them."""
    length: int = key(50, ge=1)
    """Steps of an episode."""


@dataclass(frozen=True)
class EmulatedPolicyConfig:
    """A policy that sleeps."""

    act_s: float = key(0.001, ge=0)
    """Seconds that it takes to answer one environment."""
    change_s: float = key(0.0, ge=0)
    """Seconds to make room for a simulator, and to come back (`env.resident=false`)."""
    weights: int = key(1000, ge=1)
    """Numbers that are published."""


@dataclass(frozen=True)
class EmulatedAlgorithmConfig:
    """An algorithm of which only the roles matter."""

    needs_reference: bool = False
    """Whether the samples are scored by a reference model."""

    @property
    def embodied(self) -> bool:
        return True


def length(distribution: str, request: str, draw: int = 0) -> float:
    """Length of a response, in mean lengths."""
    words = hashlib.blake2b(request.encode(), digest_size=16, key=draw.to_bytes(4, "little") if draw else b"").digest()
    first, second = ((int.from_bytes(words[at : at + 8], "little") + 0.5) / 2**64 for at in (0, 8))
    if distribution == "lognormal":
        normal = math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)
        return min(CAP, math.exp(normal - 0.5))
    if distribution == "pareto":
        return min(CAP, first ** (-1 / 1.5) / 3)
    return 1.0


def tokens(units: float) -> int:
    """Tokens of a response of that length, one at least."""
    return max(1, round(units * TOKENS))

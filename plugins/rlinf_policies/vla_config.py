"""Configuration keys of the policies that see and read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlinf_cli.api import key


@dataclass(frozen=True)
class SeeingConfig:
    """What policies that see images and read instructions have in common."""

    path: str = ""
    """Hugging Face directory of the model; empty: a small one with random weights."""
    chunk: int = key(1, ge=1)
    """Environment steps that an action is for."""
    instruction_tokens: int = key(32, ge=1)
    """Tokens of an instruction that are read."""
    value_width: int = key(128, ge=1)
    """Width of the critic's hidden layer."""

    def problems_with_spaces(self, observation_space: Any, action_space: Any) -> Iterator[str]:
        """What the policy cannot serve, a sentence each."""
        from gymnasium.spaces import Box

        from rlinf_policies.spaces import images, observation_problems

        yield from observation_problems(observation_space, images=True)
        if not images(observation_space):
            yield "nothing of the observation is an image, which this policy acts by: use model.name=mlp"
        if not isinstance(action_space, Box) or not action_space.is_bounded():
            yield f"the action is {action_space}, but this policy draws numbers within bounds: it needs a bounded Box"


@dataclass(frozen=True)
class VLAConfig(SeeingConfig):
    """Keys of `model.name=vla`."""

    action_end: int = key(0, ge=0)
    """Token id before which the 256 action tokens end; 0: the size of the vocabulary. OpenVLA's is 32000, as its embedding is
    padded."""


@dataclass(frozen=True)
class PI0Config(SeeingConfig):
    """Keys of `model.name=pi0`."""

    chunk: int = key(8, ge=1)
    """Environment steps of an action that are carried out; a model of a directory may plan more."""
    denoising_steps: int = key(4, ge=1)
    """Steps in which noise becomes an action."""
    noise: float = key(0.1, gt=0)
    """Standard deviation of what is added in each of these steps at first; it is learned."""
    normalize: bool = True
    """Whether vectors that are observed are shifted and scaled by their running mean and deviation."""

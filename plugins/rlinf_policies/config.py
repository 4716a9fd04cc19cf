"""Configuration keys of the policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from rlinf_cli.api import key


@dataclass(frozen=True)
class ActorConfig:
    """What policies that draw whole actions have in common."""

    sees: ClassVar[bool] = False
    """Whether images are taken."""

    hidden: list[int] = key([64, 64], ge=1)  # noqa: RUF009
    """Width of each hidden layer, of the actor and of the critic."""
    activation: str = key("tanh", choices=("tanh", "relu", "silu"))
    """Between layers."""
    log_std: float = 0.0
    """Logarithm of the standard deviation that continuous actions begin with, in the environment's units (`squash`: before
    the tanh)."""
    squash: bool = False
    """Whether continuous actions are brought within their bounds by a tanh; else they are cut off there."""
    normalize: bool = True
    """Whether vectors that are observed are shifted and scaled to mean 0 and deviation 1, by all that has been observed."""

    def problems_with_spaces(self, observation_space: Any, action_space: Any) -> Iterator[str]:
        """What the policy cannot serve, a sentence each."""
        from rlinf_policies.spaces import action_problems, observation_problems

        yield from observation_problems(observation_space, images=self.sees)
        yield from action_problems(action_space, self.squash)


@dataclass(frozen=True)
class MLPConfig(ActorConfig):
    """Keys of `model.name=mlp`."""


@dataclass(frozen=True)
class CNNConfig(ActorConfig):
    """Keys of `model.name=cnn`."""

    sees: ClassVar[bool] = True

    hidden: list[int] = key([256], ge=1)  # noqa: RUF009
    """Width of each hidden layer, of the actor and of the critic, after the convolutions."""
    activation: str = key("relu", choices=("tanh", "relu", "silu"))
    """Between layers."""
    channels: list[int] = key([16, 32, 64, 64], ge=1)  # noqa: RUF009
    """Channels of each convolution, all of which halve the image."""
    features: int = key(256, ge=1)
    """Numbers that become of an image."""

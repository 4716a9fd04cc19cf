"""An actor and a critic, fully connected and apart from each other, over what is observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from rlinf_cli.api import Acted, Evaluated, Tensors
from rlinf_policies.config import ActorConfig
from rlinf_policies.heads import head, linear
from rlinf_policies.observing import Observing
from rlinf_policies.spaces import require_served

ACTIVATIONS: Mapping[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU}


class ActorCritic(Observing):
    """Contract: `rlinf_cli.api.Policy` and `Imitates`. `seen`: numbers that `_see` makes of the images."""

    chunk = 1
    is_apart = True
    """Whether the critic shares nothing with the actor."""

    def __init__(self, config: ActorConfig, observation_space: Space[Any], action_space: Space[Any], seen: int = 0) -> None:
        require_served(config, observation_space, action_space)
        super().__init__(observation_space, config.normalize)
        self.actor, width = tower(self._size + seen, config.hidden, config.activation)
        self.critic = nn.Sequential(tower(self._size + seen, config.hidden, config.activation)[0], linear(width, 1, 1.0))
        self.head = head(width, action_space, config.log_std, config.squash)
        self.noise_size = self.head.noise_size

    def act(self, observation: Tensors, noise: Tensor, deterministic: bool = False) -> Acted:
        with torch.no_grad():
            x = self._read(observation)
            drawn = self.head.draw(through(self.actor, x), noise, deterministic)
            return Acted(drawn.actions, drawn.sampled, drawn.logprobs, None if self.is_apart else through(self.critic, x)[:, 0])

    def evaluate(self, observation: Tensors, sampled: Tensor) -> Evaluated:
        x = self._read(observation)
        logprobs, entropy = self.head.judge(self.actor(x), sampled)
        return Evaluated(logprobs, entropy, self.critic(x)[:, 0])

    def drawn(self, actions: Tensor) -> Tensor:
        return self.head.drawn(actions)

    @torch.no_grad()
    def values(self, observation: Tensors) -> Tensor:
        values: Tensor = self.critic(self._read(observation))[:, 0]
        return values

    def _read(self, observation: Tensors) -> Tensor:
        """What actor and critic see, float32 [N, size + seen]."""
        return self._vectors(observation)


def through(layers: nn.Sequential, x: Tensor) -> Tensor:
    """As `layers(x)` without hooks, which nobody has when a policy acts: for few environments calling modules takes as long as
    what they compute."""
    for layer in layers:
        x = through(layer, x) if isinstance(layer, nn.Sequential) else layer.forward(x)
    return x


def tower(inputs: int, hidden: Sequence[int], activation: str) -> tuple[nn.Sequential, int]:
    """Hidden layers, each with its activation, and the width of what comes out."""
    widths = [inputs, *hidden]
    layers: list[nn.Module] = []
    for before, after in zip(widths, hidden):
        layers += [linear(before, after), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers), widths[-1]

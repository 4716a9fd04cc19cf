"""`cnn`: convolutions over images, which actor and critic share, beside vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from rlinf_cli.api import Tensors
from rlinf_policies.actor_critic import ACTIVATIONS, ActorCritic
from rlinf_policies.config import CNNConfig
from rlinf_policies.heads import linear
from rlinf_policies.spaces import WHOLE, channels_last, images


class CNNPolicy(ActorCritic):
    """Contract: `rlinf_cli.api.Policy`."""

    is_apart = False

    def __init__(self, config: CNNConfig, observation_space: Space[Any], action_space: Space[Any]) -> None:
        shapes = images(observation_space)
        super().__init__(config, observation_space, action_space, seen=config.features * len(shapes))
        self._names = list(shapes)
        self.eyes = nn.ModuleList(Eye(shape, config.channels, config.features, config.activation) for shape in shapes.values())

    def _read(self, observation: Tensors) -> Tensor:
        whole = {WHOLE: observation} if isinstance(observation, Tensor) else observation
        seen = [eye(whole[name]) for name, eye in zip(self._names, self.eyes)]
        return torch.cat([*seen, *([self._vectors(observation)] if self._sizes else [])], 1)


class Eye(nn.Module):
    """Convolutions that halve an image each, and a layer that makes `features` numbers of what is left."""

    def __init__(self, shape: tuple[int, ...], channels: Sequence[int], features: int, activation: str) -> None:
        super().__init__()
        self._channels_last = channels_last(shape)
        height, width, first = shape if self._channels_last else (*shape[1:], shape[0])
        layers: list[nn.Module] = []
        for before, after in zip([first, *channels], channels):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), ACTIVATIONS[activation]()]
            height, width = -(-height // 2), -(-width // 2)
            nn.init.orthogonal_(layers[-2].weight, math.sqrt(2))  # type: ignore[arg-type]
        self.layers = nn.Sequential(*layers, nn.Flatten(), linear(channels[-1] * height * width, features),
                                    ACTIVATIONS[activation]())

    def forward(self, pixels: Tensor) -> Tensor:
        """uint8 [N, height, width, channels] or [N, channels, height, width] to float32 [N, features]."""
        image = pixels.permute(0, 3, 1, 2) if self._channels_last else pixels
        seen: Tensor = self.layers(image.float() / 255)
        return seen

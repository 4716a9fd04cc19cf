"""What policies make of the vectors that they observe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium.spaces import Space
from torch import Tensor, nn

from rlinf_cli.api import Tensors
from rlinf_policies.normalize import RunningNorm
from rlinf_policies.spaces import WHOLE, vectors


class Observing(nn.Module):
    """Base of policies that observe vectors, one after the other and, where `normalize`, shifted and scaled."""

    def __init__(self, observation_space: Space[Any], normalize: bool) -> None:
        super().__init__()
        self._sizes = vectors(observation_space)
        self._size = sum(self._sizes.values())
        self.norm = RunningNorm(self._size) if normalize and self._size else None

    def statistics(self, observation: Tensors) -> Mapping[str, Tensor]:
        return {} if self.norm is None else self.norm.statistics(flat(observation, self._sizes))

    def absorb(self, statistics: Mapping[str, Tensor]) -> None:
        if self.norm is not None:
            self.norm.absorb(statistics)

    def _vectors(self, observation: Tensors) -> Tensor:
        """float32 [N, size]; of an observation that has some."""
        x = flat(observation, self._sizes)
        return x if self.norm is None else self.norm.forward(x)


def flat(observation: Tensors, sizes: Mapping[str, int]) -> Tensor:
    """The parts of those names one after the other, float32 [N, sum of sizes]; numbers of choices become one-hot vectors."""
    if isinstance(observation, Tensor):
        return _vector(observation, sizes[WHOLE])
    return torch.cat([_vector(observation[name], size) for name, size in sizes.items()], 1)


def _vector(part: Tensor, size: int) -> Tensor:
    if part.ndim == 1 and not part.is_floating_point():
        return nn.functional.one_hot(part.long(), size).float()
    return part.reshape(len(part), size).float()

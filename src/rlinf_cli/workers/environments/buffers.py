"""What passes between a pool and its processes: arrays of a half, laid out once, each process writing its own rows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.rl.segment import Observation

if TYPE_CHECKING:
    from gymnasium import Space

_ALIGN = 64

Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]


@dataclass(slots=True)
class Buffers:
    """Rows of instances: what they are told, and what came of it."""

    action: NDArray[Any]
    """[E, ...], or [E, chunk, ...] where an action is for several steps."""
    observation: Observation
    """[E, ...]: of the instances that ended, already of the episode that followed."""
    final: Observation
    """[E, ...]: the last observation of the episode, where one ended."""
    reward: NDArray[np.float32]
    """[E]: the sum over the steps that were made."""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    success: NDArray[np.bool_]
    """[E]: in any of the steps."""
    length: NDArray[np.int32]
    """[E]: steps that were made, fewer than the chunk where the episode ended within it."""

    def rows(self, of: slice) -> Buffers:
        """Views of some rows."""
        return Buffers(self.action[of], part(self.observation, of), part(self.final, of), self.reward[of], self.terminated[of],
                       self.truncated[of], self.success[of], self.length[of])


def buffers(observation_space: Space[Any], action_space: Space[Any], count: int, chunk: int, allocate: Allocate) -> Buffers:
    """For so many instances; `allocate(shape, dtype)` makes the arrays."""
    steps = (count,) if chunk == 1 else (count, chunk)
    return Buffers(
        allocate((*steps, *_shape(action_space)), action_space.dtype), _observation(observation_space, count, allocate),
        _observation(observation_space, count, allocate), allocate((count,), np.float32), allocate((count,), np.bool_),
        allocate((count,), np.bool_), allocate((count,), np.bool_), allocate((count,), np.int32))


def _observation(space: Space[Any], count: int, allocate: Allocate) -> Observation:
    inner: Mapping[str, Space[Any]] | None = getattr(space, "spaces", None)
    if inner is not None:
        return {name: allocate((count, *_shape(one)), one.dtype) for name, one in inner.items()}
    return allocate((count, *_shape(space)), space.dtype)


def _shape(space: Space[Any]) -> tuple[int, ...]:
    return space.shape or ()


class Measure:
    """Allocates nothing, and knows how many bytes `Carve` will need."""

    def __init__(self) -> None:
        self.size = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        self.size += _aligned(math.prod(shape) * np.dtype(dtype).itemsize)
        return np.empty(0, dtype)


class Carve:
    """Allocates one array after the other from a piece of memory that is shared."""

    def __init__(self, memory: Any) -> None:
        self._memory, self._place = memory, 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        array: NDArray[Any] = np.ndarray(shape, dtype, self._memory, self._place)
        self._place += _aligned(array.nbytes)
        return array


private: Allocate = functools.partial(np.zeros)
"""Allocates memory of this process."""


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def part(observation: Observation, index: Any) -> Observation:
    """Some rows of it: views for a slice or a number, else copies."""
    if isinstance(observation, Mapping):
        return {name: array[index] for name, array in observation.items()}
    found: NDArray[Any] = observation[index]
    return found


def put(target: Observation, source: Observation, rows: Any = ...) -> None:
    """Write the same rows of one observation into another."""
    if isinstance(target, dict):
        for name, array in target.items():
            array[rows] = cast("Mapping[str, NDArray[Any]]", source)[name][rows]
    else:
        cast("NDArray[Any]", target)[rows] = cast("NDArray[Any]", source)[rows]

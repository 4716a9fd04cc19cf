"""What environments and a policy tell each other, as arrays of fixed shapes for `rlinf_cli.flow.exchange`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.spaces import Dict, Space
from numpy.typing import NDArray

from rlinf_cli.flow.exchange import Block, Shapes
from rlinf_cli.rl.segment import Observation
from rlinf_cli.workers.environments.buffers import part
from rlinf_cli.workers.environments.simulators import Arrival

_PLAIN = {"reward": "float32", "terminated": "bool", "truncated": "bool", "lost": "bool", "has_final": "bool",
          "numbers": "int64", "ages": "int64", "tasks": "int64"}
_OBSERVATION, _FINAL, _ACTION = "observation", "final", "action"


def arrival_shapes(space: Space[Any], count: int) -> Shapes:
    """Of an `Arrival` of so many environments."""
    plain = {name: ((count,), dtype) for name, dtype in _PLAIN.items()}
    parts = {f"{kind}{name}": ((count, *shape), dtype) for kind in (_OBSERVATION, _FINAL)
             for name, (shape, dtype) in parts_of(space).items()}
    return {**plain, **parts}


def action_shapes(space: Space[Any], count: int, chunk: int) -> Shapes:
    """Of actions, as `Pool.send` takes them."""
    (shape, dtype), = parts_of(space).values()
    return {_ACTION: ((count, *((chunk,) if chunk > 1 else ()), *shape), dtype)}


def parts_of(space: Space[Any]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> shape and type of each array of an element; one name, which is empty, where it is a single array."""
    if isinstance(space, Dict):
        return {name: one for name in space for one in parts_of(space[name]).values()}
    assert space.dtype is not None
    return {"": (tuple(space.shape or ()), str(np.dtype(space.dtype)))}


def post(arrival: Arrival, rows: slice, block: Block) -> None:
    """Write some rows of an arrival."""
    out = block.arrays
    for name in ("reward", "terminated", "truncated", "lost", "numbers", "ages", "tasks"):
        out[name][:] = getattr(arrival, name)[rows]
    for name, array in named(arrival.observation).items():
        out[_OBSERVATION + name][:] = array[rows]
    out["has_final"][:] = False
    for row, final in arrival.final.items():
        if rows.start <= row < rows.stop:
            out["has_final"][row - rows.start] = True
            for name, array in named(final).items():
                out[_FINAL + name][row - rows.start] = array


def posted(block: Block, is_mapping: bool) -> Arrival:
    """What was written, as views."""
    arrays = block.arrays
    finals = _part(arrays, _FINAL, is_mapping)
    return Arrival(_part(arrays, _OBSERVATION, is_mapping), arrays["reward"], arrays["terminated"], arrays["truncated"],
                   arrays["lost"], {int(row): part(finals, int(row)) for row in np.flatnonzero(arrays["has_final"])},
                   arrays["numbers"], arrays["ages"], arrays["tasks"])


def actions_of(block: Block) -> NDArray[Any]:
    return block.arrays[_ACTION]


def beside(arrivals: list[Arrival]) -> Arrival:
    """Those of one half, from several ranks, as one."""
    if len(arrivals) == 1:
        return arrivals[0]
    offsets = np.cumsum([0, *(len(one.reward) for one in arrivals)]).tolist()

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(one, name) for one in arrivals])

    final = {row + offset: one for arrival, offset in zip(arrivals, offsets, strict=False) for row, one in arrival.final.items()}
    observations = [named(one.observation) for one in arrivals]
    whole = {name: np.concatenate([one[name] for one in observations]) for name in observations[0]}
    return Arrival(unnamed(whole, isinstance(arrivals[0].observation, Mapping)), joined("reward"), joined("terminated"),
                   joined("truncated"), joined("lost"), final, joined("numbers"), joined("ages"), joined("tasks"))


def named(observation: Observation) -> Mapping[str, NDArray[Any]]:
    """Its arrays by name, as `parts_of`."""
    return observation if isinstance(observation, Mapping) else {"": observation}


def unnamed(arrays: Mapping[str, NDArray[Any]], is_mapping: bool) -> Observation:
    """The observation that was `named`."""
    return arrays if is_mapping else arrays[""]


def _part(arrays: Mapping[str, NDArray[Any]], kind: str, is_mapping: bool) -> Observation:
    return unnamed({name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)}, is_mapping)


def size(space: Space[Any]) -> int:
    """Bytes of an element."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in parts_of(space).values())

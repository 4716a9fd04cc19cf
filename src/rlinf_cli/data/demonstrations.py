"""Demonstrations in a file: HDF5, laid out as robomimic and LIBERO have it.

    data                          attributes: format, environment (as env.name), settings (JSON), total (steps)
    data/demo_0, demo_1, ...      attributes: num_samples (T), task, instruction, seed, state
        obs/NAME                  [T, ...]: before the action; `state` where an observation is one array
        actions                   [T, ...]
        rewards, dones            float32 [T], uint8 [T]

HDF5 by h5py is one package on top of NumPy; the LeRobot layout would need Arrow, a video codec and the library itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.errors import PluginError, UsageError

FORMAT = "rlinf demonstrations 1"
STATE = "state"
"""Name of an observation that is one array."""

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Demonstration:
    """An episode of somebody who knows how. T steps."""

    observations: Arrays
    """[T, ...] each: before the action."""
    actions: NDArray[Any]
    """[T, ...]: what is to be learned, which is not always what was done."""
    rewards: NDArray[np.float32]
    """[T]: of what was done."""
    task: str
    instruction: str
    seed: int
    state: int

    def __len__(self) -> int:
        return len(self.actions)


def write_demonstrations(path: Path, shown: Sequence[Demonstration], environment: str, settings: Mapping[str, Any]) -> None:
    """Replaces the file, once all of it is written."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with _h5py().File(aside, "w") as file:
        data = file.create_group("data")
        data.attrs.update({"format": FORMAT, "environment": environment, "settings": json.dumps(settings),
                           "total": sum(map(len, shown))})
        for number, one in enumerate(shown):
            _write(data.create_group(f"demo_{number}"), one)
    aside.replace(path)


def _write(group: Any, one: Demonstration) -> None:
    group.attrs.update({"num_samples": len(one), "task": one.task, "instruction": one.instruction, "seed": one.seed,
                        "state": one.state})
    for name, array in one.observations.items():
        # frames of a film are much alike
        compression = {"compression": "gzip", "compression_opts": 4} if array.dtype == np.uint8 else {}
        group.create_dataset(f"obs/{name}", data=array, **compression)
    dones = np.zeros(len(one), np.uint8)
    dones[-1:] = 1
    for name, array in {"actions": one.actions, "rewards": one.rewards, "dones": dones}.items():
        group.create_dataset(name, data=array)


def read_demonstrations(path: Path) -> list[Demonstration]:
    """In the order of their numbers. Raises UsageError for a file that is none of these, or holds none."""
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            shown = list(_read(file, path))
    except OSError as error:
        raise UsageError(f"{path} is no HDF5 file that can be read: {error}") from error
    if not shown:
        raise UsageError(f"{path} holds no demonstrations")
    return shown


def _read(file: Any, path: Path) -> Iterator[Demonstration]:
    if "data" not in file:
        raise UsageError(f"{path} is not laid out as demonstrations: it has no group 'data' (see docs/demonstrations.md)")
    groups = sorted((group for name, group in file["data"].items() if name.startswith("demo_")),
                    key=lambda group: int(group.name.rpartition("_")[2]))
    for group in groups:
        missing = [name for name in ("obs", "actions") if name not in group]
        if missing:
            raise UsageError(f"{path}: {group.name} has no '{missing[0]}'")
        told = group.attrs
        actions = group["actions"][()]
        rewards = group["rewards"][()] if "rewards" in group else np.zeros(len(actions))
        yield Demonstration({name: array[()] for name, array in group["obs"].items()}, actions, rewards.astype(np.float32),
                            str(told.get("task", "")), str(told.get("instruction", "")), int(told.get("seed", 0)),
                            int(told.get("state", -1)))


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise PluginError("demonstrations are kept in HDF5 files, which need h5py, not installed here; run: "
                          "pip install 'rlinf-cli[demos]'") from error
    return h5py

"""ManiSkill's environments as one vector environment: batches of scenes on a GPU, or as many single ones on cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlinf_maniskill.config import ManiSkillConfig
from rlinf_maniskill.simulator import simulator

Observed = NDArray[Any] | dict[str, NDArray[Any]]


class ManiSkillVector(VectorEnv[Any, Any, Any]):
    """Contract: `rlinf_cli.api.Environment.make`. With `observation=images` an observation has `state`, and an image for each
    of the task's cameras, by their names. On a GPU the initial states of scenes that are reset together depend on all
    their seeds; on cores each is a function of its own seed."""

    def __init__(self, config: ManiSkillConfig, max_steps: int, count: int, device: str, images: bool) -> None:
        self.num_envs, self.render_mode = count, "rgb_array" if images else None
        self._config, self._max_steps = config, max_steps
        self._batch = count if device.startswith("cuda") else 1
        with torch.inference_mode():
            self._simulators = [simulator(config, self._batch, device, images) for _ in range(count // self._batch)]
            first = self._simulators[0]
            self.metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"],
                             "render_fps": first.control_freq}
            self.single_observation_space = _space(self._observed(first.get_obs()))
        self.single_action_space = first.single_action_space
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self._steps = np.zeros(count, np.int64)
        self._seen: list[Observed] = []

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        seeds = [int(one or 0) for one in (seed if isinstance(seed, Sequence) else [seed] * self.num_envs)]
        self._steps[mask] = 0
        with torch.inference_mode():
            reset = [self._reset(one, mask[rows], seeds[rows]) for one, rows in self._parts() if mask[rows].any()]
        fresh = iter(reset)
        self._seen = [next(fresh) if mask[rows].any() else self._seen[number] for number, (_, rows) in enumerate(self._parts())]
        return _joined(self._seen), {}

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        self._steps += 1
        with torch.inference_mode():
            stepped = [self._step(one, actions[rows]) for one, rows in self._parts()]
        self._seen = [observed for observed, *_ in stepped]
        reward, success, failure = (np.concatenate(column) for column in list(zip(*stepped, strict=True))[1:])
        terminated = failure | (success & (self._config.on_success == "terminate"))
        truncated = (self._steps >= self._max_steps) | (success & (self._config.on_success == "truncate"))
        return _joined(self._seen), reward, terminated, truncated & ~terminated, {"success": success}

    def render(self) -> Any:
        frames = [one.render() for one in self._simulators]
        return tuple(np.concatenate([_numpy(frame, self._batch) for frame in frames]))

    def close_extras(self, **kwargs: Any) -> None:
        for one in self._simulators:
            one.close()

    def _parts(self) -> list[tuple[Any, slice]]:
        """Each simulator with its instances."""
        return [(one, slice(number * self._batch, (number + 1) * self._batch)) for number, one in enumerate(self._simulators)]

    def _reset(self, one: Any, mask: NDArray[np.bool_], seeds: list[int]) -> Observed:
        chosen = torch.from_numpy(np.flatnonzero(mask)).to(one.device)
        return self._observed(one.reset(seed=seeds, options={"env_idx": chosen})[0])

    def _step(self, one: Any, actions: NDArray[Any]) -> tuple[Observed, NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Observation, reward float32, success and failure bool, each [batch, ...]."""
        observed, reward, _, _, info = one.step(torch.from_numpy(np.ascontiguousarray(actions)).to(one.device))
        nothing = np.zeros(self._batch, np.bool_)
        success, failure = (_numpy(info[name], self._batch) if name in info else nothing for name in ("success", "fail"))
        return self._observed(observed), _numpy(reward, self._batch).astype(np.float32), success, failure

    def _observed(self, told: Any) -> Observed:
        """What a policy is shown of ManiSkill's observation of a batch."""
        if self._config.observation == "state":
            return _numpy(told, self._batch)
        cameras = {name: _numpy(camera["rgb"], self._batch) for name, camera in told["sensor_data"].items()}
        return {"state": _flat([told["agent"], told["extra"]], self._batch), **cameras}


def _numpy(tensor: Any, batch: int) -> NDArray[Any]:
    """[batch, ...]; a copy, since the simulator may write to its own."""
    array: NDArray[Any] = tensor.cpu().numpy().copy() if isinstance(tensor, torch.Tensor) else np.array(tensor)
    return array if array.ndim else array.repeat(batch)


def _flat(parts: Sequence[Any], batch: int) -> NDArray[np.float32]:
    """Nested numbers, in their order, as float32 [batch, n]."""
    leaves = [leaf for part in parts for leaf in _leaves(part)]
    return np.concatenate([_numpy(leaf, batch).reshape(batch, -1) for leaf in leaves], axis=1).astype(np.float32)


def _leaves(part: Any) -> list[Any]:
    return [leaf for inner in part.values() for leaf in _leaves(inner)] if isinstance(part, Mapping) else [part]


def _joined(parts: Sequence[Observed]) -> Any:
    first = parts[0]
    if isinstance(first, dict):
        return {name: np.concatenate([part[name] for part in parts if isinstance(part, dict)]) for name in first}
    return np.concatenate([part for part in parts if not isinstance(part, dict)])


def _space(observed: Observed) -> spaces.Space[Any]:
    if isinstance(observed, dict):
        return spaces.Dict({name: _box(array) for name, array in observed.items()})
    return _box(observed)


def _box(array: NDArray[Any]) -> spaces.Box:
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape[1:], np.uint8)
    return spaces.Box(-np.inf, np.inf, array.shape[1:], np.float32)

"""Environments of gymnasium one after the other in a process, each begun again when it is told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from numpy.typing import NDArray


class Instances(SyncVectorEnv):
    """gymnasium's own, except that observations of double precision become single, instances that have ended are left alone
    until they are reset, and of the infos only `success` is gathered."""

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], count: int) -> None:
        super().__init__([make] * count, copy=False, autoreset_mode=AutoresetMode.DISABLED)
        self.single_observation_space = _single_precision(self.single_observation_space)
        self.observation_space = batch_space(self.single_observation_space, count)
        self._observations = create_empty_array(self.single_observation_space, count, fn=np.zeros)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """`starts` beside `reset_mask` are not for the instances, which know seeds only."""
        own = {name: value for name, value in (options or {}).items() if name != "starts"}
        return super().reset(seed=seed, options=own)

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        told: dict[int, bool] = {}
        terminations, truncations = self._terminations, self._truncations
        for row, env in enumerate(self.envs):
            if not self._autoreset_envs[row]:
                self._env_obs[row], self._rewards[row], terminations[row], truncations[row], info = env.step(actions[row])
                if (success := info.get("success", info.get("is_success"))) is not None:
                    told[row] = bool(success)
        concatenate(self.single_observation_space, self._env_obs, self._observations)
        np.logical_or(terminations, truncations, out=self._autoreset_envs)
        infos = {"success": np.array([told.get(row, False) for row in range(self.num_envs)])} if told else {}
        return self._observations, self._rewards, terminations, truncations, infos


def _single_precision(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: _single_precision(one) for name, one in space.spaces.items()})
    if isinstance(space, spaces.Box) and space.dtype == np.float64:
        return spaces.Box(space.low.astype(np.float32), space.high.astype(np.float32), dtype=np.float32)
    return space

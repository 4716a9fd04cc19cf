"""gymnasium's CartPole of many instances at once, begun again one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

_ENTRY_POINT = f"{CartPoleVectorEnv.__module__}:{CartPoleVectorEnv.__qualname__}"
_BOUND = 0.05
"""Of the numbers that a state begins with."""


def is_cartpole(spec: EnvSpec) -> bool:
    """Whether an id is registered with gymnasium's own vector environment of CartPole."""
    return bool(spec.vector_entry_point == _ENTRY_POINT)


class _Anything:
    """A space of all actions."""

    def contains(self, x: Any) -> bool:
        return True


class CartPole(VectorWrapper):
    """`CartPoleVectorEnv`, which has one seed for all and begins what has ended by itself, with a seed for each instance:
    that of the same number begins as gymnasium's single CartPole does."""

    env: CartPoleVectorEnv

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        self._cartpole: Any = env.unwrapped
        # what policies draw is an action: to look at each one takes a fifth of a step
        anything: Any = _Anything()
        self._cartpole.action_space = anything
        self.metadata = {**env.metadata, "autoreset_mode": AutoresetMode.DISABLED}

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        cartpole, mask = self._cartpole, (options or {})["reset_mask"]
        if cartpole.state is None:
            self.env.reset(seed=0)
        rows = np.flatnonzero(mask)
        drawn = [np.random.Generator(np.random.PCG64(seed[row])).uniform(-_BOUND, _BOUND, 4) for row in rows.tolist()]
        cartpole.state[:, rows] = np.array(drawn).T
        cartpole.steps[rows] = 0
        return cartpole.state.T.astype(np.float32), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        stepped = self.env.step(actions)
        self._cartpole.prev_done[:] = False
        return stepped

    def render(self) -> tuple[NDArray[np.uint8], ...]:
        return tuple(np.array(frame, np.uint8) for frame in self._cartpole.render())

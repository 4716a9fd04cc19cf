"""An environment whose episodes can be worked out by hand, and which misbehaves when it is told to.

Observed: seed of the episode, steps so far, sum of the actions. An episode of seed s terminates after 3 + s % 4 steps and is
truncated after 5. Success: an action above 10.
"""

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlinf_cli.errors import UsageError

KILL, RAISE, HANG = -9.0, -8.0, -7.0


@dataclass(frozen=True)
class Counting:
    behaviour: str = ""

    def tasks(self):
        return [""]

    def states(self, task):
        return 0

    def instruction(self, task):
        return ""

    def make(self, count, device, images):
        if self.behaviour == "refuse":
            raise UsageError("there is no such task")
        if self.behaviour == "die":
            os._exit(3)
        return CountingVector(count, self.behaviour)


class CountingVector(VectorEnv):
    def __init__(self, count, behaviour):
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs, self.behaviour = count, behaviour
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        if behaviour == "dict":
            self.single_observation_space = spaces.Dict(
                {"state": self.single_observation_space, "image": spaces.Box(0, 255, (2, 2, 3), np.uint8)})
        self.single_action_space = spaces.Box(-10, 20, (), np.float32)
        self.state = np.zeros((count, 3), np.float32)

    def reset(self, *, seed=None, options=None):
        for row in np.flatnonzero(options["reset_mask"]).tolist():
            assert options["starts"][row].seed == seed[row]
            if seed[row] == 666:
                os.kill(os.getpid(), signal.SIGKILL)
            self.state[row] = seed[row], 0, 0
        assert all(one is None for one, masked in zip(options["starts"], options["reset_mask"]) if not masked)
        return self._observed(), {}

    def step(self, actions):
        if (actions == KILL).any():
            os.kill(os.getpid(), signal.SIGKILL)
        if (actions == RAISE).any():
            raise ValueError("the robot fell")
        if (actions == HANG).any():
            time.sleep(600)
        self.state[:, 1] += 1
        self.state[:, 2] += actions
        terminated = self.state[:, 1] >= 3 + self.state[:, 0] % 4
        infos = {} if self.behaviour == "silent" else {"success": actions > 10}
        return self._observed(), actions.astype(np.float64), terminated, self.state[:, 1] >= 5, infos

    def render(self):
        return tuple(np.full((4, 6, 3), int(seed) % 256, np.uint8) for seed in self.state[:, 0])

    def _observed(self):
        if self.behaviour != "dict":
            return self.state.copy()
        image = np.broadcast_to(self.state[:, 1].astype(np.uint8)[:, None, None, None], (self.num_envs, 2, 2, 3))
        return {"state": self.state.copy(), "image": image}

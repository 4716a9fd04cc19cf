"""LIBERO's tasks as one vector environment; each instance is a simulation of its own, made anew where its task changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlinf_cli.api import Start
from rlinf_libero.config import LiberoConfig
from rlinf_libero.simulator import ACTION, CAMERAS, FREQUENCY, Simulator
from rlinf_libero.state import ROBOT, SIZE
from rlinf_libero.suites import Task

Rows = list[dict[str, NDArray[Any]]]


class LiberoVector(VectorEnv[Any, Any, Any]):
    """Contract: `rlinf_cli.api.Environment.make`. With `observation=images` an observation has `state`, which is the robot's part
    of it, `image`, of a camera that looks at the table, and `wrist_image`, of one on the hand. The reward is 1 where the goal is
    reached, which ends the episode."""

    def __init__(self, config: LiberoConfig, tasks: Sequence[Task], count: int, images: bool) -> None:
        self.num_envs, self.render_mode = count, "rgb_array" if images else None
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED, "render_modes": ["rgb_array"], "render_fps": FREQUENCY}
        self._config, self._tasks = config, {task.name: task for task in tasks}
        self._observed = tuple(CAMERAS) if config.observation == "images" else ()
        self._drawn = self._observed or (("image",) if images else ())
        self.single_observation_space = _space(self._observed, config.image_size)
        self.single_action_space = spaces.Box(-1, 1, (ACTION,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, count)
        self.action_space = batch_space(self.single_action_space, count)
        self._simulators: list[Simulator | None] = [None] * count
        self._steps = np.zeros(count, np.int64)
        self._seen: Rows = [{} for _ in range(count)]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        asked = options or {}
        mask = asked.get("reset_mask", np.ones(self.num_envs, np.bool_))
        starts = asked.get("starts") or [None] * self.num_envs
        seeds = seed if isinstance(seed, Sequence) else [seed] * self.num_envs
        for instance in np.flatnonzero(mask).tolist():
            self._reset(instance, starts[instance] or Start(int(seeds[instance] or 0)))
        return self._observation(), {}

    def step(self, actions: Any) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        self._steps += 1
        success = np.array([one.step(action) for one, action in zip(self._running(), actions, strict=True)], np.bool_)
        self._seen = [self._look(one) for one in self._running()]
        truncated = (self._steps >= self._config.max_steps) & ~success
        return self._observation(), success.astype(np.float32), success, truncated, {"success": success}

    def render(self) -> Any:
        return tuple(one.image("image") for one in self._running())

    def state(self, instance: int) -> NDArray[np.float32]:
        """What a state observation of it is now, whatever policies are shown."""
        return self._running()[instance].state()

    def close_extras(self, **kwargs: Any) -> None:
        for one in self._simulators:
            if one is not None:
                one.close()

    def _reset(self, instance: int, start: Start) -> None:
        """A start that names no task or state has them drawn from its seed."""
        random = np.random.default_rng(start.seed)
        task = self._tasks[start.task or list(self._tasks)[random.integers(len(self._tasks))]]
        one = self._simulator(instance, task)
        one.reset(start.state if start.state >= 0 else int(random.integers(one.states)))
        self._steps[instance] = 0
        self._seen[instance] = self._look(one)

    def _simulator(self, instance: int, task: Task) -> Simulator:
        before = self._simulators[instance]
        if before is not None and before.task == task:
            return before
        if before is not None:
            before.close()
        made = Simulator(task, self._drawn, self._config.image_size, self._config.settle_steps)
        self._simulators[instance] = made
        return made

    def _running(self) -> list[Simulator]:
        running = [one for one in self._simulators if one is not None]
        assert len(running) == self.num_envs, "reset comes first"
        return running

    def _look(self, one: Simulator) -> dict[str, NDArray[Any]]:
        if not self._observed:
            return {"state": one.state()}
        return {"state": one.robot_state(), **{name: one.image(name) for name in self._observed}}

    def _observation(self) -> Any:
        joined = {name: np.stack([row[name] for row in self._seen]) for name in self._seen[0]}
        return joined if self._observed else joined["state"]


def _space(cameras: Sequence[str], size: int) -> spaces.Space[Any]:
    if not cameras:
        return spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    images = {name: spaces.Box(0, 255, (size, size, 3), np.uint8) for name in cameras}
    return spaces.Dict({"state": spaces.Box(-np.inf, np.inf, (ROBOT,), np.float32), **images})

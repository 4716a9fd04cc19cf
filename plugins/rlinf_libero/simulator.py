"""One LIBERO task: robosuite's environment, driven so that an episode is a function of its initial state and actions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from rlinf_cli.api import PluginError
from rlinf_libero.quiet import quiet
from rlinf_libero.state import State
from rlinf_libero.suites import Task

CAMERAS = {"image": "agentview", "wrist_image": "robot0_eye_in_hand"}
"""Name in an observation -> LIBERO's camera."""
REST = np.array([0, 0, 0, 0, 0, 0, -1], np.float32)
"""The action that keeps the hand where it is, and open."""
ACTION = 7
"""Translation and rotation of the hand, relative to where it is, and the gripper (-1 open, 1 closed), in [-1, 1]."""

FREQUENCY = 20
"""Actions a second."""

_PLACEMENT_SEED = 0
"""Of where furniture stands, which LIBERO's initial states do not hold."""


class Simulator:
    """A task in this process. `cameras`: names in `CAMERAS` that are drawn, pixels of their sides by `size`."""

    def __init__(self, task: Task, cameras: tuple[str, ...], size: int, settle_steps: int) -> None:
        self.task, self._cameras, self._settle_steps = task, cameras, settle_steps
        self._starts = task.initial_states()
        with quiet(), _numpy_seed(_PLACEMENT_SEED):
            self._env = _environment(task, [CAMERAS[name] for name in cameras], size)
        self._env.deterministic_reset = True  # from here on furniture stays
        self._substeps = round(self._env.control_timestep / self._env.model_timestep)
        self._only_cameras()
        self._state = State(self._env)

    @property
    def states(self) -> int:
        """How many initial states there are."""
        return len(self._starts)

    def reset(self, index: int) -> None:
        """Begin an episode at one of the task's initial states, with objects at rest."""
        self._env.reset()
        robot = self._env.robots[0]
        robot.gripper.current_action = np.zeros(robot.gripper.dof)
        self._env.sim.set_state_from_flattened(self._starts[index])
        self._env.sim.forward()
        robot.controller.update(force=True)
        robot.controller.reset_goal()
        self._env._post_process()
        self._env._update_observables(force=True)
        for _ in range(self._settle_steps):
            self.step(REST)

    def step(self, action: NDArray[np.float32]) -> bool:
        """Whether the goal is reached.

        robosuite's own `step` computes all forces three times between two states, for itself, for its controller, and to go on;
        here once: positions and velocities are enough for the controller (`mj_step1`), and what follows from its torques
        completes the step (`mj_step2`). No test compares the two.
        """
        env, sim = self._env, self._env.sim
        model, data = sim.model._model, sim.data._data
        sim.forward = lambda: mujoco.mj_step1(model, data)
        for substep in range(self._substeps):
            env._pre_action(action, substep == 0)
            mujoco.mj_step2(model, data)
        del sim.forward
        env._post_process()
        env._update_observables(force=True)
        return bool(env._check_success())

    def state(self) -> NDArray[np.float32]:
        """See `State`."""
        return self._state.read()

    def robot_state(self) -> NDArray[np.float32]:
        """The part of it that is the robot's own."""
        return self._state.robot()

    def image(self, name: str) -> NDArray[np.uint8]:
        """[size, size, 3] of one of the cameras, upright."""
        return np.ascontiguousarray(self._env._observables[f"{CAMERAS[name]}_image"].obs[::-1])

    def close(self) -> None:
        self._env.close()

    def _only_cameras(self) -> None:
        """Let nothing else be observed at every step of the physics: what is needed is read from the simulation."""
        wanted = {f"{CAMERAS[name]}_image" for name in self._cameras}
        for name in self._env.observation_names - wanted:
            self._env.modify_observable(name, "enabled", False)


def _environment(task: Task, cameras: list[str], size: int) -> Any:
    if cameras:
        os.environ.setdefault("MUJOCO_GL", "egl")
    from libero.libero.envs.env_wrapper import ControlEnv

    try:
        made = ControlEnv(bddl_file_name=str(task.definition), has_offscreen_renderer=bool(cameras), use_camera_obs=bool(cameras),
                          camera_names=cameras or ["agentview"], camera_heights=size, camera_widths=size, hard_reset=False,
                          control_freq=FREQUENCY, ignore_done=True)
    except (ImportError, AttributeError) as error:  # what PyOpenGL makes of a library that is not there
        if not cameras:
            raise
        raise PluginError(f"LIBERO cannot draw images here: MUJOCO_GL={os.environ['MUJOCO_GL']} does not work ({error}); install "
                          "EGL (apt: libegl1, libgl1-mesa-dri), or leave images out: env.observation=state, and no recording "
                          "(rlinf doctor)") from error
    return made.env


@contextlib.contextmanager
def _numpy_seed(seed: int) -> Iterator[None]:
    """robosuite draws from NumPy's global generator; it is put back afterwards."""
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)

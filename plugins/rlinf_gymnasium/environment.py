"""Any environment of gymnasium by its id."""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv

from rlinf_cli.api import PluginError, UsageError
from rlinf_gymnasium.cartpole import CartPole, is_cartpole
from rlinf_gymnasium.config import GymnasiumConfig
from rlinf_gymnasium.instances import Instances

_LOG = logging.getLogger(__name__)


class Gymnasium:
    """An id of gymnasium's registry: one task, whose initial states are drawn from seeds.

    Source: Towers et al., "Gymnasium: A Standard Interface for Reinforcement Learning Environments" (arXiv 2407.17032).
    Instances run one after the other in a process (CartPole's as gymnasium's own arrays). `success` is what the infos tell as
    `success` or `is_success`. Raises UsageError for an id that is not registered.
    """

    def __init__(self, config: GymnasiumConfig) -> None:
        self._config = config
        _spec(config.task)

    def tasks(self) -> Sequence[str]:
        return [""]

    def states(self, task: str) -> int:
        return 0

    def instruction(self, task: str) -> str:
        return ""

    def make(self, count: int, device: str, images: bool) -> VectorEnv[Any, Any, Any]:
        """Raises UsageError for spaces that no policy takes, PluginError when a package that the id needs is missing, or what
        `images` are drawn with."""
        spec = _spec(self._config.task)
        settings: dict[str, Any] = {"render_mode": "rgb_array" if images else None}
        if self._config.max_steps:
            settings["max_episode_steps"] = self._config.max_steps
        try:
            made = _vector(spec, count, settings)
            _check_spaces(self._config.task, made)
            if images:
                _draw(made)
        except gymnasium.error.DependencyNotInstalled as error:
            raise PluginError(f"environment {self._config.task} needs a package that is not installed here: {error}") from error
        return made


def _vector(spec: EnvSpec, count: int, settings: dict[str, Any]) -> VectorEnv[Any, Any, Any]:
    _tell_warnings_of_mujoco(spec)
    if is_cartpole(spec):
        return CartPole(gymnasium.make_vec(spec, count, vectorization_mode="vector_entry_point", **settings))
    return Instances(lambda: gymnasium.make(spec, disable_env_checker=True, **settings), count)


def _draw(made: VectorEnv[Any, Any, Any]) -> None:
    """Once, so that what is missing shows before anything depends on it. Without a display MuJoCo draws with EGL."""
    if "DISPLAY" not in os.environ:
        os.environ.setdefault("MUJOCO_GL", "egl")
    everywhere = np.ones(made.num_envs, np.bool_)
    made.reset(seed=[0] * made.num_envs, options={"reset_mask": everywhere})  # type: ignore[arg-type]
    try:
        made.render()
    except ImportError as error:  # of a library that MuJoCo draws with
        raise gymnasium.error.DependencyNotInstalled(str(error)) from error


def _spec(task: str) -> EnvSpec:
    module, _, name = task.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        return gymnasium.spec(name)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise UsageError(f"env.task '{task}' is no id of gymnasium: {' '.join(str(error).split())} See: python -c 'import "
                         "gymnasium; gymnasium.pprint_registry()'") from error


def _tell_warnings_of_mujoco(spec: EnvSpec) -> None:
    """Once each, in the log; MuJoCo itself would add them to a file in the working directory for every instance."""
    if str(spec.entry_point).startswith("gymnasium.envs.mujoco"):
        try:
            import mujoco
        except ModuleNotFoundError as error:
            raise gymnasium.error.DependencyNotInstalled(str(error)) from error
        if mujoco.get_mju_user_warning() is None:
            mujoco.set_mju_user_warning(functools.cache(_LOG.warning))


def _check_spaces(task: str, made: VectorEnv[Any, Any, Any]) -> None:
    observation, action = made.single_observation_space, made.single_action_space
    boxes = isinstance(observation, spaces.Dict) and all(isinstance(one, spaces.Box) for one in observation.spaces.values())
    if not boxes and not isinstance(observation, (spaces.Box, spaces.Discrete)):
        raise UsageError(f"{task} is observed as {observation}: a Box, a Discrete or a Dict of boxes can be used")
    if not isinstance(action, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete)):
        raise UsageError(f"{task} acts by {action}: a Box, a Discrete or a MultiDiscrete can be used")

"""Makes ManiSkill's own environments, for machines that can render and for those that cannot."""

from __future__ import annotations

import os
import warnings
from typing import Any

from rlinf_cli.api import PluginError, UsageError
from rlinf_maniskill.config import ManiSkillConfig
from rlinf_maniskill.renderless import can_render, without_materials

NO_RENDERER = ("ManiSkill finds no device to render with, so there are no images; for a machine without a GPU install "
               "Mesa's lavapipe, version 25 or later (apt: mesa-vulkan-drivers, libvulkan1), or leave images out: "
               "env.observation=state, and no recording (rlinf doctor)")


def simulator(config: ManiSkillConfig, batch: int, device: str, images: bool) -> Any:
    """A `mani_skill.envs.sapien_env.BaseEnv` of so many scenes. More than one need a GPU."""
    os.environ.setdefault("MS_SKIP_ASSET_DOWNLOAD_PROMPT", "1")  # nobody is there to answer it
    drawn = images or config.observation == "images"
    if drawn and not can_render():
        raise PluginError(NO_RENDERER)
    if not can_render():
        without_materials()
    made = _make(config, batch, device, "rgb_array" if images else None, drawn)
    if made.single_action_space.__class__.__name__ != "Box":
        raise UsageError(f"ManiSkill's task '{config.task}' has several robots; there must be one")
    return made


def _make(config: ManiSkillConfig, batch: int, device: str, render_mode: str | None, drawn: bool) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gymnasium
        import mani_skill.envs  # noqa: F401 registers the tasks

        on_gpu = device.startswith("cuda")
        side = {"width": config.image_size, "height": config.image_size}
        try:
            made = gymnasium.make(
                config.task, num_envs=batch, obs_mode="rgb" if config.observation == "images" else "state",
                control_mode=config.control or None, reward_mode=config.reward, render_mode=render_mode,
                sim_backend=f"physx_{device}" if on_gpu else "physx_cpu",
                render_backend=(f"sapien_{device}" if on_gpu else "sapien_cpu") if drawn else "none",
                sensor_configs=side if config.observation == "images" else {})
        except AssertionError as error:
            _, found, known = str(error).partition("not in supported modes: ")
            if not found:
                raise
            raise UsageError(f"the robot of ManiSkill's task '{config.task}' has no controller '{config.control}' "
                             f"(env.control); it has {known}") from error
    return made.unwrapped

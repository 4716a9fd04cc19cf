"""ManiSkill itself, without a renderer, and with one where there is one."""

import importlib.util

import numpy as np
import pytest

from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.plugins.testing import check_environment
from rlinf_maniskill.config import ManiSkillConfig
from rlinf_maniskill.environment import ManiSkill

pytestmark = [pytest.mark.maniskill,
              pytest.mark.skipif(importlib.util.find_spec("mani_skill") is None, reason="mani-skill is not installed")]
REACH = {"PushCube-v1": 35, "PickCube-v1": 42, "MS-CartpoleBalance-v1": 10}
"""Task -> numbers of its state observation."""


def made(count=1, images=False, **settings):
    return ManiSkill(ManiSkillConfig(**settings)).make(count, "cpu", images)


def rendering():
    from rlinf_maniskill.renderless import can_render

    return can_render()


def test_the_contract():
    check_environment(ManiSkill, ManiSkillConfig("PushCube-v1", max_steps=12), steps=15)


@pytest.mark.parametrize("task", REACH)
def test_states_are_observed_without_a_renderer(task):
    vector = made(task=task)
    assert vector.single_observation_space.shape == (REACH[task],)
    observed, _ = vector.reset(seed=[3])
    assert np.isfinite(observed).all()
    vector.close()


def test_an_episode_is_cut_at_its_end_and_not_before():
    vector = made(2, max_steps=3)
    vector.reset(seed=[1, 2])
    still = np.zeros((2, 8), np.float32)
    assert [vector.step(still)[3].tolist() for _ in range(2)] == [[False, False]] * 2
    vector.reset(seed=[1, 2], options={"reset_mask": np.array([True, False])})
    assert vector.step(still)[3].tolist() == [False, True]
    vector.close()


@pytest.mark.parametrize(("on_success", "ended"), [("continue", (False, False)), ("terminate", (True, False)),
                                                   ("truncate", (False, True))])
def test_success_ends_what_it_is_told_to(on_success, ended, monkeypatch):
    vector = made(on_success=on_success)
    vector.reset(seed=[1])
    import torch

    cube = vector._simulators[0]
    with torch.inference_mode():
        cube.obj.set_pose(cube.goal_region.pose)
    _, reward, terminated, truncated, infos = vector.step(np.zeros((1, 8), np.float32))
    assert infos["success"].tolist() == [True]
    assert reward[0] > 0.9
    assert (bool(terminated[0]), bool(truncated[0])) == ended
    vector.close()


def test_a_controller_that_the_robot_lacks_is_told_with_those_that_it_has():
    with pytest.raises(UsageError, match=r"has no controller 'by_thought' \(env.control\); it has .*pd_ee_delta_pose"):
        made(control="by_thought")


def test_without_a_renderer_images_are_refused_and_with_one_they_are_there():
    if not rendering():
        with pytest.raises(PluginError, match="lavapipe"):
            made(observation="images")
        return
    vector = made(2, True, observation="images", image_size=32)
    observed, _ = vector.reset(seed=[1, 2])
    assert observed["base_camera"].shape == (2, 32, 32, 3)
    assert observed["base_camera"].std() > 5
    assert {frame.dtype for frame in vector.render()} == {np.dtype(np.uint8)}
    vector.close()

"""What is told of ManiSkill without simulating: its tasks from its files, what is wrong before anything is made."""

import pickle
import sys

import pytest

from rlinf_cli.errors import UsageError
from rlinf_maniskill.config import ManiSkillConfig
from rlinf_maniskill.environment import ManiSkill
from rlinf_maniskill.renderless import Undrawn
from rlinf_maniskill.tasks import tasks

PUSH = """
from somewhere import register_env

@register_env("PushThing-v1", max_episode_steps=70)
class PushThing: ...

@register_env("PushBTwice-v2")
class PushTwice: ...

NAME = "Computed-v1"

@register_env("PullThing-v1", asset_download_ids=["things"], max_episode_steps=None)
class PullThing: ...
"""


@pytest.fixture(autouse=True)
def package(site, monkeypatch):
    """A mani_skill that would raise if anything of it were run."""
    monkeypatch.delitem(sys.modules, "mani_skill", raising=False)
    folder = site.folder / "mani_skill" / "envs" / "tasks"
    folder.mkdir(parents=True)
    (site.folder / "mani_skill" / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "push.py").write_text(PUSH)
    (folder / "other.py").write_text("raise RuntimeError('run')")
    tasks.cache_clear()
    yield
    tasks.cache_clear()


def test_tasks_are_read_from_files_that_are_not_run():
    assert tasks() == {"PushThing-v1": 70, "PushBTwice-v2": 50, "PullThing-v1": 50}


@pytest.mark.parametrize(("asked", "got"), [(0, 70), (20, 20)])
def test_episodes_are_as_long_as_the_task_says_or_the_user(asked, got):
    assert ManiSkill(ManiSkillConfig("PushThing-v1", max_steps=asked)).max_steps == got


def test_an_unknown_task_is_told_with_the_nearest():
    with pytest.raises(UsageError, match="ManiSkill has no task 'PushThin-v1'; did you mean 'PushThing-v1'"):
        ManiSkill(ManiSkillConfig("PushThin-v1"))


@pytest.mark.parametrize(("task", "words"), [("PushThing-v1", "push thing"), ("PushBTwice-v2", "push b twice")])
def test_the_instruction_is_the_name_in_words(task, words):
    made = pickle.loads(pickle.dumps(ManiSkill(ManiSkillConfig(task))))
    assert made.instruction("") == words
    assert (list(made.tasks()), made.states("")) == ([""], 0)


def test_what_nobody_draws_takes_what_it_is_told():
    material = Undrawn(base_color=[1, 0, 0, 1], metallic=0.5)
    material.set_roughness(0.3)
    material.set_base_color([0, 0, 1, 1])
    assert (material.base_color, material.metallic, material.anything) == ([0, 0, 1, 1], 0.5, None)

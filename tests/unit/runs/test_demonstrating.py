"""Episodes of an expert: which there are, what is written down of them, and that each is a function of its start."""

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlinf_cli.contracts.environment import Start
from rlinf_cli.errors import UsageError
from rlinf_cli.runs.demonstrating import Errand, Stage, errands

CONFIG = SimpleNamespace(seed=3, env=SimpleNamespace(name="line"))


class Line(VectorEnv):
    """A point that is to come to 0, within 10 steps."""

    single_observation_space = spaces.Box(-9, 9, (1,), np.float32)
    single_action_space = spaces.Box(np.array([-1], np.float32), np.array([3], np.float32))
    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def reset(self, *, seed, options):
        (start,) = options["starts"]
        self.place, self.steps, self.done = np.float32([[start.state + 2]]), 0, []
        return self.place, {}

    def step(self, actions):
        self.done.append(float(actions[0, 0]))
        self.place += actions
        self.steps += 1
        there = np.abs(self.place[:, 0]) < 0.5
        return self.place, there.astype(np.float32), there, np.array([self.steps == 10]) & ~there, {"success": there}


class Environment:
    def __init__(self, states=5, able=("home",)):
        self._states, self._able = states, able

    def tasks(self):
        return ["home"]

    def states(self, task):
        return self._states

    def instruction(self, task):
        return f"come {task}"

    def make(self, count, device, images):
        self.made = Line()
        return self.made

    def expert(self, task):
        if task not in self._able:
            raise UsageError(f"the expert cannot do {task}")
        return SimpleNamespace(act=lambda made, instance: np.clip(-made.place[instance], -1, 3))


def test_an_episode_is_written_down_up_to_its_end():
    shown = Stage(Environment()).show(Errand(4, Start(1, "home", 2), 0.0))
    told = shown.demonstration
    assert (shown.number, shown.success) == (4, True)
    assert (told.task, told.instruction, told.seed, told.state) == ("home", "come home", 1, 2)
    assert told.observations["state"].ravel().tolist() == [4, 3, 2, 1]
    assert told.actions.ravel().tolist() == [-1] * 4
    assert told.rewards.tolist() == [0, 0, 0, 1]


def test_what_fails_is_told():
    shown = Stage(Environment()).show(Errand(0, Start(1, "home", 50), 0.0))
    assert (shown.success, len(shown.demonstration)) == (False, 10)


def test_noise_is_on_what_is_done_and_not_on_what_is_to_be_learned():
    environment = Environment()
    stage, errand = Stage(environment), Errand(0, Start(11, "home", 3), 0.3)
    first = stage.show(errand).demonstration
    done = environment.made.done
    assert done != first.actions.ravel().tolist()
    assert np.array_equal(first.actions, np.clip(-first.observations["state"], -1, 3))
    assert all(-1 <= one <= 3 for one in done)
    stage.show(Errand(1, Start(12, "home", 1), 0.3))
    assert np.array_equal(stage.show(errand).demonstration.actions, first.actions)


def test_each_task_is_shown_from_its_states_in_order():
    wanted = errands(CONFIG, Environment(), 3, 0.1)
    assert [(one.number, one.start.task, one.start.state, one.noise) for one in wanted] == [
        (0, "home", 0, 0.1), (1, "home", 1, 0.1), (2, "home", 2, 0.1)]
    assert len({one.start.seed for one in wanted}) == 3


def test_where_states_are_drawn_seeds_are():
    assert [one.start.state for one in errands(CONFIG, Environment(states=0), 3, 0.0)] == [-1] * 3


@pytest.mark.parametrize(("environment", "told"), [
    (Environment(states=2), "--episodes 3: task 'home' has 2 initial states"),
    (Environment(able=()), "the expert cannot do home"),
    (SimpleNamespace(tasks=lambda: [""]), "environment 'line' has no expert")])
def test_what_cannot_be_shown_is_told_before_anything_is_made(environment, told):
    with pytest.raises(UsageError, match=told):
        errands(CONFIG, environment, 3, 0.0)

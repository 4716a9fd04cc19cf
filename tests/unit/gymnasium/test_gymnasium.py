"""Environments of gymnasium keep the contract, begin as gymnasium's own do, and say what cannot be used."""

from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf_cli.contracts.environment import Start
from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.plugins.testing import check_environment
from rlinf_cli.workers.environments.pool import Pool
from rlinf_gymnasium.config import GymnasiumConfig
from rlinf_gymnasium.environment import Gymnasium


class Reached(gymnasium.Env):
    """Its infos tell success, in the words of the one who registers it; observed in double precision, by name."""

    metadata: ClassVar = {"render_modes": ["rgb_array"]}
    observation_space = spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float64)})
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, word="is_success", render_mode=None):
        self.word, self.render_mode = word, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert "starts" not in (options or {})
        self.steps = 0
        return {"place": self.np_random.uniform(-1, 1, 2)}, {}

    def step(self, action):
        self.steps += 1
        return {"place": np.array([0.5, action[0]])}, 0.25, False, False, {self.word: self.steps == 2}


class Tupled(Reached):
    observation_space = spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))


class Undrawable(Reached):
    def __init__(self, render_mode=None):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed, run `pip install pygame`")


@pytest.fixture
def registered():
    names = {"test/Reached-v0": Reached, "test/Tupled-v0": Tupled, "test/Undrawable-v0": Undrawable}
    for name, entry_point in names.items():
        gymnasium.register(name, entry_point=entry_point, max_episode_steps=3)
    yield
    for name in names:
        del gymnasium.registry[name]


def environment(task, **settings):
    return Gymnasium(GymnasiumConfig(task, **settings))


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "InvertedPendulum-v5"])
def test_the_contract(task):
    check_environment(Gymnasium, GymnasiumConfig(task), steps=60)


@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1", "InvertedPendulum-v5"])
def test_a_seed_begins_as_it_does_in_gymnasium(task):
    made = environment(task).make(3, "cpu", False)
    observation, _ = made.reset(seed=[7, 8, 9], options={"reset_mask": np.ones(3, bool), "starts": [None] * 3})
    for row, seed in enumerate([7, 8, 9]):
        assert observation[row].tolist() == gymnasium.make(task).reset(seed=seed)[0].astype(np.float32).tolist()


def test_cartpole_steps_as_in_gymnasium():
    alone, made = gymnasium.make("CartPole-v1"), environment("CartPole-v1").make(2, "cpu", False)
    made.reset(seed=[3, 4], options={"reset_mask": np.ones(2, bool), "starts": [None] * 2})
    alone.reset(seed=4)
    for step in range(200):
        observation, reward, terminated, truncated, _ = made.step(np.array([0, step % 2]))
        expected = alone.step(step % 2)
        np.testing.assert_allclose(observation[1], expected[0], rtol=1e-5, atol=1e-6)
        assert (reward[1], terminated[1], truncated[1]) == expected[1:4]
        if terminated[1]:
            break
    assert terminated[1]


@pytest.mark.parametrize(("settings", "steps"), [({}, 500), ({"max_steps": 7}, 7)])
def test_episodes_are_cut_as_registered_or_as_configured(settings, steps):
    made = environment("CartPole-v1", **settings).make(1, "cpu", False)
    observation, _ = made.reset(seed=[0], options={"reset_mask": np.ones(1, bool), "starts": [None]})
    for step in range(1, steps + 1):
        lean = observation[0] @ [0.05, 0.1, 1, 0.5]  # balances for ever
        observation, _, terminated, truncated, _ = made.step(np.array([int(lean > 0)]))
        assert not terminated
        assert truncated == (step == steps)


def test_success_final_observation_and_precision_through_a_pool(registered):
    with Pool(environment("test/Reached-v0"), 2, 1, "cpu", Start) as pool:
        assert pool.reset(0, [Start(1), Start(2)])["place"].dtype == np.float32
        success, finals = [], {}
        for _ in range(3):
            pool.send(0, np.array([[0.25], [0.5]]))
            stepped = pool.receive(0)
            success.append(stepped.success.tolist())
            finals |= stepped.final_observations
    assert success == [[False, False], [True, True], [False, False]]
    assert stepped.truncated.all()
    assert not stepped.terminated.any()
    assert {row: final["place"].tolist() for row, final in finals.items()} == {0: [0.5, 0.25], 1: [0.5, 0.5]}


def test_what_cannot_be_used_is_told(registered):
    with pytest.raises(UsageError, match=r"env\.task 'CartPol-v1' is no id of gymnasium: .*Did you mean: `CartPole`"):
        environment("CartPol-v1")
    with pytest.raises(UsageError, match="No module named 'nowhere'"):
        environment("nowhere:Thing-v0")
    with pytest.raises(UsageError, match=r"test/Tupled-v0 is observed as Tuple\(.*a Dict of boxes can be used"):
        environment("test/Tupled-v0").make(1, "cpu", False)
    with pytest.raises(PluginError, match=r"test/Undrawable-v0 needs a package .*pip install pygame"):
        environment("test/Undrawable-v0").make(1, "cpu", True)

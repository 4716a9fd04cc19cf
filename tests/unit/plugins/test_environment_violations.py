"""`check_environment` finds each of these faults, in an environment that is otherwise good."""

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlinf_cli.plugins.testing import check_environment
from rlinf_gymnasium.config import GymnasiumConfig
from rlinf_gymnasium.environment import Gymnasium


class Points(VectorEnv):
    def __init__(self, count):
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.single_observation_space = spaces.Box(-9, 9, (1,), np.float32)
        self.single_action_space = spaces.Discrete(3)
        self.num_envs, self.place, self.steps = count, np.zeros((count, 1), np.float32), np.zeros(count, int)

    def reset(self, *, seed=None, options=None):
        for row in np.flatnonzero(options["reset_mask"]):
            self.place[row], self.steps[row] = np.random.default_rng(seed[row]).uniform(-2, 2), 0
        return self.place.copy(), {}

    def step(self, actions):
        self.place[:, 0] += 0.1 * (actions - 1)
        self.steps += 1
        near = abs(self.place[:, 0]) < 0.1
        return self.place.copy(), near - 0.01, near, self.steps >= 20, {"success": near}

    def render(self):
        return tuple(np.zeros((4, 4, 3), np.uint8) for _ in range(self.num_envs))


class Good:
    vector = Points

    def __init__(self, config):
        self.config = config

    def tasks(self):
        return ["push", "pull"]

    def states(self, task):
        return 2

    def instruction(self, task):
        return task

    def make(self, count, device, images):
        return self.vector(count)


class SharedNoise(Points):
    def step(self, actions):
        self.place += np.random.default_rng(int(self.steps[0])).normal(size=self.place.shape).astype(np.float32) / 100
        return super().step(actions)


class Remembers(Points):
    def reset(self, *, seed=None, options=None):
        self.count = getattr(self, "count", 0) + 1
        super().reset(seed=seed, options=options)
        self.place[options["reset_mask"]] += self.count / 100
        return self.place.copy(), {}


class ResetsAll(Points):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self.place[~options["reset_mask"]] = 0
        return self.place.copy(), {}


class Doubles(Points):
    def step(self, actions):
        observation, *rest = super().step(actions)
        return observation.astype(np.float64), *rest


class CountsAsFlags(Points):
    def step(self, actions):
        return *super().step(actions)[:4], {"success": np.ones(self.num_envs, int)}


class ResetsItself(Points):
    def __init__(self, count):
        super().__init__(count)
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}


class ActsInTuples(Points):
    def __init__(self, count):
        super().__init__(count)
        self.single_action_space = spaces.MultiBinary(2)

    def step(self, actions):
        return super().step(np.zeros(self.num_envs))


class FlatFrames(Points):
    def render(self):
        return tuple(np.zeros((4, 4), np.uint8) for _ in range(self.num_envs))


VECTORS = {
    SharedNoise: "an episode was another one beside another instance: they must not share random numbers",
    Remembers: "an episode of the same start and actions was another one the second time",
    ResetsAll: r"reset\(\) with a mask changed an instance that is not in it",
    Doubles: r"step\(\) gives an observation of shape \(3, 1\) and type float64; the space says \(3, 1\) and float32",
    CountsAsFlags: "success must be a bool for each instance",
    ResetsItself: r"metadata\['autoreset_mode'\] must be AutoresetMode.DISABLED, not NEXT_STEP",
    ActsInTuples: "single_action_space is a MultiBinary: policies take Box or Discrete or MultiDiscrete",
    FlatFrames: r"render\(\) must give a uint8 frame \[height, width, 3\] for each instance",
}


@pytest.mark.parametrize("vector", VECTORS)
def test_faulty_instances(vector):
    environment = type("Faulty", (Good,), {"vector": vector, "__reduce__": lambda self: (Good, (None,))})
    with pytest.raises(AssertionError, match=VECTORS[vector]):
        check_environment(environment, images=True)


def test_faulty_descriptions():
    class Twice(Good):
        def tasks(self):
            return ["push", "push"]

        def states(self, task):
            return None

    with pytest.raises(AssertionError) as told:
        check_environment(Twice)
    assert "tasks() must be distinct names" in str(told.value)
    assert "pickle" in str(told.value)


def test_a_good_one():
    check_environment(type("Fine", (Good,), {"__reduce__": lambda self: (Good, (None,))}), images=True)


def test_an_extension_is_checked_with_its_defaults(plugins):
    assert plugins.get("environment", "gymnasium").load() is Gymnasium
    check_environment(plugins.get("environment", "gymnasium"), GymnasiumConfig(max_steps=9))

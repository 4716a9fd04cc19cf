"""The policy's side of a step, without Ray: real environments that can be worked out by hand, and a policy that can be."""

import numpy as np
import pytest
import torch

from rlinf_cli.config.load import resolve
from rlinf_cli.contracts.policy import Acted
from rlinf_cli.flow.exchange import LinkLost
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.noise import action_noise, episode_keys
from rlinf_cli.workers.acting import Turns
from rlinf_cli.workers.collecting import Collector
from rlinf_cli.workers.environments.partition import Partition
from rlinf_cli.workers.environments.partner import Direct
from rlinf_cli.workers.environments.simulators import Arrival
from rlinf_cli.workers.policies import Actor, Noise, PolicyEngine

STEPS = 4


class Echo(torch.nn.Module):
    """Acts with its weight, draws its noise, and values an observation by its second number."""

    chunk, noise_size = 1, 2

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor(1.0))

    def act(self, observation, noise, deterministic=False):
        count = len(observation)
        return Acted(self.weight.detach().repeat(count), noise, noise.sum(1, keepdim=True), observation[:, 1])

    def values(self, observation):
        return observation[:, 1]


class Countdown:
    """What `Simulators` gives, made by hand: episodes of 3 steps, every other one of which is cut off."""

    halves = range(1)
    is_over = False

    def __init__(self, count):
        self.count, self.age, self.number, self.sent = count, 0, 0, []

    def latest(self, half):
        return self._arrival()

    def send(self, half, actions):
        self.sent.append(actions)

    def receive(self, half):
        self.age += 1
        ended = self.age == 3
        cut = ended and self.number % 2 == 1
        final = {row: np.array([row, 33, 0], np.float32) for row in range(self.count)} if cut else {}
        if ended:
            self.age, self.number = 0, self.number + 1
        return self._arrival(ended and not cut, cut, final)

    def take_episodes(self):
        return []

    def _arrival(self, terminated=False, truncated=False, final=None):
        rows = np.arange(self.count)
        observation = np.stack([rows, np.full(self.count, 10 * self.number + self.age), rows], 1).astype(np.float32)
        return Arrival(observation, np.full(self.count, 2.0, np.float32), np.full(self.count, terminated),
                       np.full(self.count, truncated), np.zeros(self.count, bool), final or {},
                       np.full(self.count, self.number), np.full(self.count, self.age), np.zeros(self.count, np.int64))


@pytest.fixture
def config():
    return resolve([], [f"rollout.steps={STEPS}", "env.count=2", "seed=5"], {}, load_plugins(None))


def run(config, simulators, steps=1):
    engine = PolicyEngine(Echo())
    direct = Direct(simulators)
    segments = []
    for _ in range(steps):
        turns = Turns(config, engine, "cpu", Partition(2, 1, 1, 1), 0, True)
        direct.begin()
        segments += turns.run(direct)
    return segments


class TestSegment:
    def test_rows_are_what_was_seen_what_was_done_and_what_came_of_it(self, config):
        simulators = Countdown(2)
        [segment] = run(config, simulators)
        assert segment.observations[:, 0, 1].tolist() == [0, 1, 2, 10]
        assert segment.rewards.tolist() == [[2, 2]] * STEPS
        assert segment.terminated[:, 0].tolist() == [False, False, True, False]
        assert segment.values[:, 0].tolist() == [0, 1, 2, 10, 11]
        assert segment.episode_ids[:, 0].tolist() == [0, 0, 0, 1]
        assert segment.environments.tolist() == [0, 1]
        assert [actions.tolist() for actions in simulators.sent] == [[1, 1]] * STEPS

    def test_the_next_one_goes_on_where_it_ended(self, config):
        first, second = run(config, Countdown(2), steps=2)
        assert second.observations[0, :, 1].tolist() == first.values[-1].tolist()
        assert second.truncated[:, 0].tolist() == [False, True, False, False]
        assert second.final_values[:, 0].tolist() == [0, 33, 0, 0]
        assert not first.final_values.any()

    def test_noise_is_a_function_of_seed_environment_episode_and_age(self, config):
        whole, again = run(config, Countdown(2), 2)[0], run(config, Countdown(2))[0]
        np.testing.assert_array_equal(whole.sampled, again.sampled)
        alone = Actor(config, Echo(), "cpu", np.array([1]))
        policy = Echo()
        for t, (number, age) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0)]):
            acted = alone.act(policy, np.zeros((1, 3), np.float32), np.array([number]), np.array([age]))
            np.testing.assert_array_equal(acted.sampled[0].numpy(), whole.sampled[t, 1])
        assert len({float(one) for one in whole.sampled.reshape(-1)}) == whole.sampled.size

    def test_each_row_says_which_weights_acted(self, config):
        engine, simulators = PolicyEngine(Echo()), Countdown(2)
        send = simulators.send

        def update(half, actions):
            send(half, actions)
            if len(simulators.sent) == 2:
                engine.update_weights(7, [("weight", torch.tensor(3.0))])

        simulators.send = update
        direct = Direct(simulators)
        direct.begin()
        [segment] = Turns(config, engine, "cpu", Partition(2, 1, 1, 1), 0, True).run(direct)
        assert segment.versions[:, 0].tolist() == [0, 0, 7, 7]
        assert [actions[0] for actions in simulators.sent] == [1, 1, 3, 3]

    def test_environments_that_stop_in_the_middle_of_a_step_are_a_loss(self, config):
        simulators = Countdown(2)
        simulators.is_over = True
        with pytest.raises(LinkLost):
            run(config, simulators)


class TestLostEpisodes:
    def test_are_marked_up_to_their_beginning_and_end_there(self):
        collector = Collector(np.array([4]), 4)
        acted = Acted(*(torch.zeros(1) for _ in range(1)), torch.zeros(1, 1), torch.zeros(1, 1), torch.zeros(1))

        def told(number, lost=False):
            return Arrival(np.zeros((1, 3), np.float32), np.zeros(1, np.float32), np.zeros(1, bool), np.zeros(1, bool),
                           np.array([lost]), {}, np.array([number]), np.zeros(1, np.int64), np.zeros(1, np.int64))

        for t, arrival in enumerate([told(1), told(2), told(2), told(3, lost=True)]):
            collector.take(t, arrival, arrival.observation)
            collector.add(t, acted, 0)
        collector.take(4, told(3), np.zeros((1, 3), np.float32))
        segment = collector.segment(np.zeros(1, np.float32), np.empty(0, np.float32))
        assert segment.lost[:, 0].tolist() == [False, True, True, False]
        assert segment.terminated[:, 0].tolist() == [False, False, True, False]


class TestWeights:
    def test_the_checksum_is_of_what_is_held_then(self):
        engine = PolicyEngine(Echo())
        before = engine.weights_checksum()
        engine.update_weights(3, [("weight", torch.tensor(2.0))])
        assert engine.version == 3
        assert engine.weights_checksum() != before
        engine.update_weights(4, [("weight", torch.tensor(1.0))])
        assert engine.weights_checksum() == before


class TestNoise:
    def test_is_the_same_in_advance_as_one_by_one(self):
        environments = np.array([3, 5, 8])
        noise = Noise(7, environments, 2)
        numbers, ages, dice = np.array([0, 4, 9]), np.array([0, 2, 0]), np.random.default_rng(0)
        for _ in range(100):
            expected = action_noise(episode_keys(7, environments, numbers), ages, 2)
            np.testing.assert_array_equal(noise.at(numbers, ages), expected)
            ended = dice.random(3) < 0.1
            numbers, ages = numbers + ended, np.where(ended, 0, ages + 1)

"""Policies in environments learn what they are rewarded for, in one process, without Ray: the workflow's own parts in a loop."""

import numpy as np
import pytest
import torch

from rlinf_cli.config.load import resolve
from rlinf_cli.contracts.trainer import Ranks
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workers.acting import Turns
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.environments.build import build_environment, spaces
from rlinf_cli.workers.environments.partition import Partition
from rlinf_cli.workers.environments.partner import Direct
from rlinf_cli.workers.environments.pool import Pool
from rlinf_cli.workers.environments.simulators import Simulators
from rlinf_cli.workers.environments.starts import EvaluationPlan, TrainingPlan, evaluation_starts
from rlinf_cli.workers.policies import Actor, PolicyEngine, build_policy
from rlinf_cli.workers.policy_learner import PolicyLearner
from rlinf_cli.workers.transitions import deal_segments

pytestmark = pytest.mark.learning


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def simulators(config, environment, plan, count, wanted=None):
    return Simulators(lambda ask: Pool(environment, count, 1, "cpu", ask), plan,
                      {task: place for place, task in enumerate(environment.tasks())}, 0, count, wanted)


def learned(config):
    """The policy after `config.steps` steps."""
    environment, count = build_environment(config), config.env.count
    engine = PolicyEngine(build_policy(config, spaces(config), "cpu"))
    trainer = config.extension("trainer").load().policy(
        config.settings("trainer"), build_policy(config, spaces(config), "cpu"), "cpu", Ranks(),
        config.steps * config.algorithm.epochs * config.algorithm.minibatches)
    algorithm = build_algorithm(config)
    learner = PolicyLearner(algorithm, trainer)
    mine = simulators(config, environment, TrainingPlan(config, environment, 0, count), count)
    mine.begin()
    direct = Direct(mine)
    for step in range(config.steps):
        direct.begin()
        segments = Turns(config, engine, "cpu", Partition(count, 1, 1, 1), 0, True).run(direct)
        segments[0].episodes.extend(direct.told())
        dealt = deal_segments(segments, algorithm, config, step, 1)
        learner.train(dealt.portions[0])
        algorithm.state = dealt.state
        engine.update_weights(step + 1, trainer.named_weights())
    mine.close()
    return engine.policy


def evaluated(config, policy, parallel=20):
    """Mean return of `eval.episodes` episodes with the likeliest actions."""
    environment = build_environment(config)
    starts = evaluation_starts(config, environment)
    mine = simulators(config, environment, EvaluationPlan(starts, starts[0].start), parallel, len(starts))
    mine.begin()
    direct, actor = Direct(mine), Actor(config, policy, "cpu", np.zeros(parallel, np.int64))
    direct.begin()
    while (arrival := direct.receive(0)) is not None:
        direct.send(0, actor.act(policy, arrival.observation, arrival.numbers, arrival.ages, True).actions.numpy())
    returns = [episode.returned for episode in direct.told()]
    mine.close()
    return float(np.mean(returns))


def config_of(recipe, *arguments):
    return resolve([recipe], list(arguments), {}, load_plugins(None))


def test_ppo_solves_cartpole(one_thread, pytestconfig):
    config = config_of(pytestconfig.rootpath / "configs/ppo-cartpole.yaml", "eval.episodes=100")
    assert evaluated(config, learned(config)) >= 475


def test_ppo_learns_to_hold_a_pendulum_upright(one_thread, pytestconfig):
    config = config_of(pytestconfig.rootpath / "configs/ppo-pendulum.yaml", "eval.episodes=20")
    assert evaluated(config, learned(config)) >= 900

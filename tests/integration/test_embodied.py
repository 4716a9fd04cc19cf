"""Environments and policy in processes of their own: the same experience as in one, and none is lost with a process."""

import os
import signal
import time

import numpy as np
import pytest
import ray

from rlinf_cli.config.load import resolve
from rlinf_cli.flow.handle import gather
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.workers.acting import PolicyWorker
from rlinf_cli.workers.environment import EnvironmentWorker

pytestmark = pytest.mark.integration

COUNT = 8


def config_of(steps):
    given = ["env.name=CartPole-v1", f"env.count={COUNT}", f"rollout.steps={steps}", "cluster.fused=false"]
    return resolve([], given, {}, load_plugins(None))


@pytest.fixture
def roles(cluster):
    """`roles(config, environments, policies)`: both groups, whose ranks are started again when they die."""
    started = []

    def start(config, environments, policies):
        for role, worker, ranks in (("environment", EnvironmentWorker, environments), ("rollout", PolicyWorker, policies)):
            started.append(cluster.launch(role, worker, [[rank] for rank in range(ranks)], config, restartable=True))
        for group in started:
            group.ready(60)
        return started

    cluster.progressed()
    yield start
    for group in started:
        cluster.stop(group)


def begin(channel, roles, step):
    """The calls of a step, and where its segments come."""
    environment, rollout = roles
    observations, actions, segments = (channel(f"{name}-{step}") for name in ("observations", "actions", "segments"))
    calls = [environment.interact(actions, observations, rollout, step),
             rollout.act(observations, actions, segments, environment)]
    return calls, segments


def taken(calls, segments):
    gather(calls, 60)
    return sorted((one for chunk in segments.chunks(8, at_least=1) for one in chunk), key=lambda one: one.environments[0])


def joined(segments, name, axis=1):
    """Of all environments, in order."""
    order = np.argsort(np.concatenate([one.environments for one in segments]))
    return np.take(np.concatenate([getattr(one, name) for one in segments], axis), order, axis)


def test_a_step_goes_on_where_the_one_before_ended(roles, channel):
    """One process steps, two answer, half by half."""
    groups = roles(config_of(12), 1, 2)
    first, second = (taken(*begin(channel, groups, step)) for step in range(2))
    assert [one.environments.tolist() for one in first] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    np.testing.assert_allclose(joined(first, "values")[-1], joined(second, "values")[0], atol=1e-6)  # of the same observations
    assert joined(first, "rewards").min() == 1
    assert sum(len(one.episodes) for one in first) == joined(first, "terminated").sum()


@pytest.mark.parametrize("victim", ["environment", "rollout"])
def test_a_step_whose_process_dies_is_made_all_the_same(roles, channel, victim):
    groups = roles(config_of(1500), 1, 2)
    calls, segments = begin(channel, groups, 0)
    group = next(one for one in groups if one.role == victim)
    time.sleep(0.7)
    os.kill(ray.get(group.actors[0].hello.options(concurrency_group="host").remote()), signal.SIGKILL)
    found = taken(calls, segments)
    assert joined(found, "environments", 0).tolist() == list(range(COUNT))
    assert all(one.rewards.shape == (1500, COUNT // 4) for one in found)
    assert all(np.diff(one.episode_ids, axis=0).min() >= 0 for one in found)
    follows, more = begin(channel, groups, 1)
    np.testing.assert_allclose(joined(taken(follows, more), "values")[0], joined(found, "values")[-1], atol=1e-6)

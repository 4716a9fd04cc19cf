"""Rollouts in processes of their own: calls beside each other, leases that outlive a process, and what comes too late."""

import os
import signal
import time

import pytest

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.trajectory import Prompt
from rlinf_cli.workers.rollout import RolloutWorker
from rlinf_cli.workers.surplus import Surplus

pytestmark = pytest.mark.integration

SETTINGS = ("model.name=tiny:digits", "rollout.prompts=16", "rollout.group_size=2", "rollout.max_prompt_tokens=8",
            "rollout.max_new_tokens=24", "rollout.overprovision=0.5", "engine.slots=8")


class Slow(RolloutWorker):
    """A decode step takes some milliseconds, so that something can happen in the middle."""

    def __init__(self, config):
        super().__init__(config)
        step = self._engine._step

        def slow():
            time.sleep(0.005)
            step()

        self._engine._step = slow

    def pid(self):
        return os.getpid()


def prompts(name, count):
    return [Prompt(f"{name}-{number}", f"d{number:02d}=") for number in range(count)]


def drain(channel):
    """Of each group, in the order in which they came: the prompt's name."""
    groups = [group for chunk in channel.chunks(64, at_least=1) for group in chunk]
    assert all(len(group) == 2 for group in groups)
    return [group[0].group_id for group in groups]


@pytest.fixture(scope="module")
def rollouts(cluster):
    config = resolve([], SETTINGS, {}, load_plugins(None))
    group = cluster.launch("rollouts", Slow, [[0], [1]], config, restartable=True)
    group.ready()
    yield group
    cluster.stop(group)


def test_calls_run_beside_each_other(rollouts, channel):
    """The later one ends first, since the earlier one still waits for prompts."""
    asked, said = [channel(f"prompts{step}") for step in range(2)], [channel(f"samples{step}") for step in range(2)]
    asked[0].put_many(prompts(0, 3))
    early = rollouts.generate(asked[0], said[0])
    asked[1].put_many(prompts(1, 12))
    asked[1].close()
    rollouts.generate(asked[1], said[1]).wait(60)
    assert sorted(drain(said[1])) == sorted(prompt.id for prompt in prompts(1, 12))
    assert not early.done()
    asked[0].put_many(prompts(2, 3))
    asked[0].close()
    early.wait(60)
    assert sorted(drain(said[0])) == sorted(prompt.id for prompt in [*prompts(0, 3), *prompts(2, 3)])
    timing = [call.timing for call in early.calls()]
    assert all(one.kinds.get("wait_data", 0) > 0 for one in timing)
    assert any(one.compute > 0 for one in timing)


def test_what_comes_too_late_is_dropped(rollouts, channel):
    asked, said = channel("prompts"), channel("samples")
    said.limit(16)
    asked.put_many(prompts(0, 24))
    asked.close()
    results = rollouts.generate(asked, said).wait(60)
    answered = drain(said)
    assert len(set(answered)) == len(answered) == 16
    surplus = sum([result.surplus for result in results], Surplus())
    assert surplus.kept == 32
    # those that nobody has begun still wait
    assert surplus.dropped + 2 * asked.qsize() == 16
    assert surplus.dropped > 0


def test_the_prompts_of_one_that_is_killed_are_answered_by_others(rollouts, channel, until):
    """Scenario F2: no sample is lost or there twice."""
    asked, said = channel("prompts"), channel("samples")
    asked.put_many(prompts(0, 40))
    asked.close()
    pid = rollouts.on(1).pid().wait(60)[0]
    call = rollouts.generate(asked, said)
    until(lambda: said.qsize() >= 6, 60)
    os.kill(pid, signal.SIGKILL)
    call.wait(60)
    assert sorted(drain(said)) == sorted(prompt.id for prompt in prompts(0, 40))
    assert rollouts.on(1).pid().wait(60)[0] != pid

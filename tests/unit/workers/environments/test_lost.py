"""Processes that are killed, hang, or raise, and what is left of them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from rlinf_cli.contracts.environment import Start
from rlinf_cli.errors import RunError, UsageError

ORPHANS = """
import sys, time
sys.path.insert(0, sys.argv[1])
import counting
from rlinf_cli.contracts.environment import Start
from rlinf_cli.workers.environments.pool import Pool
pool = Pool(counting.Counting(), 2, 2, "cpu", Start)
pool.reset(0, [Start(0), Start(1)])
pool.send(0, [counting.HANG, counting.HANG])
print(*pool.pids, flush=True)
time.sleep(600)
"""


def gone(pids, patience=10.0):
    deadline = time.monotonic() + patience
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(psutil.pid_exists, pids))


def test_a_killed_process_costs_the_episodes_of_its_own_rows(make_pool, counting):
    pool = make_pool(4, 2)
    pool.send(0, [1, 1, 1, 1])
    pool.receive(0)
    pool.send(0, [counting.KILL, 2, 2, 2])
    stepped = pool.receive(0)
    assert stepped.lost.tolist() == [True, True, False, False]
    assert stepped.reward.tolist() == [0, 0, 2, 2]
    assert stepped.length.tolist() == [0, 0, 1, 1]
    assert not (stepped.terminated | stepped.truncated).any()
    assert stepped.observation.tolist() == [[1, 0, 0], [101, 0, 0], [200, 2, 3], [300, 2, 3]]
    assert stepped.began == {0: Start(1), 1: Start(101)}
    assert (pool.restarts, pool.lost_episodes) == (1, 2)
    for _ in range(4):
        pool.send(0, [0, 0, 0, 0])
        stepped = pool.receive(0)
    assert not stepped.lost.any()
    assert stepped.began == {0: Start(2), 1: Start(102)}  # seeds 1 and 101 terminate after 4 steps


def test_a_process_killed_between_steps_costs_both_halves(make_pool):
    pool = make_pool(4, 2, 2)  # rows 0 and 1 of each half are in the first and the second process
    pool.send(1, [3, 4])
    pool.receive(1)
    os.kill(pool.pids[0], signal.SIGKILL)
    assert gone(pool.pids[:1])
    for seed in (1, 2):
        pool.send(0, [1, 2])
        stepped = pool.receive(0)
        assert (stepped.lost.tolist(), stepped.began) == ([True, False], {0: Start(seed)})
        if seed == 1:  # and once more, before anybody knows of the new episode of the other half
            os.kill(pool.pids[0], signal.SIGKILL)
            assert gone(pool.pids[:1])
    pool.send(1, [5, 6])  # the action of row 0 is for an episode that is gone
    stepped = pool.receive(1)
    assert stepped.lost.tolist() == [True, False]
    assert stepped.observation.tolist() == [[201, 0, 0], [300, 2, 10]]
    assert stepped.began == {0: Start(201)}
    pool.send(1, [7, 8])
    assert pool.receive(1).observation.tolist() == [[201, 1, 7], [301, 0, 0]]
    assert (pool.restarts, pool.lost_episodes) == (2, 3)


def test_a_process_that_dies_while_episodes_begin_begins_them_again(make_pool, counting):
    pool = make_pool(2, 2)
    os.kill(pool.pids[1], signal.SIGKILL)
    assert gone(pool.pids[1:])
    assert pool.reset(0, [Start(7), Start(8)]).tolist() == [[7, 0, 0], [8, 0, 0]]
    assert (pool.restarts, pool.lost_episodes) == (1, 0)
    pool.send(0, [1, 1])
    assert not pool.receive(0).lost.any()


def test_a_process_that_hangs_is_killed(make_pool, counting):
    pool = make_pool(2, 2, patience=3.0)
    before = pool.pids
    pool.send(0, [counting.HANG, 1])
    assert pool.receive(0).lost.tolist() == [True, False]
    assert gone(before[:1])
    assert pool.pids[1] == before[1]


def test_what_a_simulator_raises_ends_the_run(make_pool, counting):
    pool = make_pool(2, 2)
    pool.send(0, [0, counting.RAISE])
    with pytest.raises(RunError, match="the environment raised ValueError: the robot fell"):
        pool.receive(0)


def test_a_simulator_that_refuses_or_dies_is_told_when_it_is_made(make_pool):
    with pytest.raises(UsageError, match="there is no such task"):
        make_pool(2, 2, behaviour="refuse")
    with pytest.raises(RunError, match=r"a process of environments ended \(exit code 3\)"):
        make_pool(2, 2, behaviour="die")


def test_a_process_that_dies_again_and_again_ends_the_run(make_pool, counting, monkeypatch):
    monkeypatch.setattr("rlinf_cli.workers.environments.pool._RESTARTS", 2)
    pool = make_pool(2, 2, episodes=lambda index, number: 666 if (index, number) == (0, 1) else number)
    for _ in range(2):
        pool.send(0, np.zeros(2))
        pool.receive(0)
    pool.send(0, np.zeros(2))
    with pytest.raises(RunError, match=r"lost 3 times; of the last one: a process of environments ended \(signal 9: Killed"):
        pool.receive(0)


def test_nothing_is_left_of_a_pool_that_is_closed(make_pool):
    before = set(os.listdir("/proc/self/fd"))
    pool = make_pool(2, 2)
    pids = pool.pids
    assert len(set(pids)) == 2
    pool.close()
    pool.close()
    assert gone(pids)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_nothing_is_left_when_the_owner_is_killed():
    owner = subprocess.Popen([sys.executable, "-c", ORPHANS, str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True)
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(psutil.pid_exists, pids))
    owner.kill()
    owner.wait()
    assert gone(pids)

"""Ranks of restartable roles that die: they are started again, nothing is lost or doubled, and when that is no use it is told."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

import pytest

from rlinf_cli.errors import RunError
from rlinf_cli.flow.errors import ChannelBrokenError, WorkerDiedError, WorkerError
from rlinf_cli.flow.handle import gather
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.stall import StallWatch
from rlinf_cli.flow.worker import Worker, concurrent, control
from rlinf_cli.state.supervisor import SupervisorState

pytestmark = pytest.mark.integration


class Rollout(Worker):
    """`faults`: a file for each process that is to end badly when it is made, by number."""

    def __init__(self, faults=None):
        self.weights = 0
        if faults is not None:
            number = len(list(faults.glob("made-*")))
            (faults / f"made-{number}").touch()
            if (faults / f"raise-{number}").exists():
                raise ValueError("the model is gone")
            if (faults / f"die-{number}").exists():
                os._exit(3)

    @concurrent
    def generate(self, prompts: In[int], samples: Out[int], delay: float = 0.02) -> int:
        count = 0
        for leases in prompts.leases(1):
            time.sleep(delay)
            samples.put((leases[0].item, self.rank), settles=leases)
            count += 1
        return count

    def say(self, text, said: Out[str], delay: float = 0.0) -> str:
        time.sleep(delay)
        said.put(text)
        return text

    def sleep(self, seconds):
        time.sleep(seconds)
        return os.getpid()

    def pid(self):
        return os.getpid()

    def ask(self, group, method):
        return getattr(group, method)().wait(20)

    @control
    def beside(self, seconds=0.0):
        time.sleep(seconds)
        return os.getpid()

    @control
    def update_weights(self, version):
        self.weights = version

    def version(self):
        return self.weights


@pytest.fixture
def incidents(cluster):
    """What the cluster has told of, as it comes."""
    seen = []
    cluster.on_incident = seen.append
    cluster.progressed()
    yield seen
    cluster.on_incident = lambda incident: None
    cluster.before_resume = lambda group, rank: ""


@pytest.fixture
def rollout(launch, incidents):
    """`rollout(ranks)`: a restartable group that is ready."""

    def start(ranks=1, *args, role="rollout"):
        group = launch(Rollout, ranks, *args, role=role, restartable=True)
        group.ready()
        return group

    return start


def kill(group, rank=0, after=0.0):
    pid = group.on(rank).beside().wait()[0]
    threading.Timer(after, os.kill, (pid, signal.SIGKILL)).start()
    return pid


# ---- started again ----


def test_a_rank_that_is_killed_loses_and_doubles_nothing(rollout, channel, incidents, cluster):
    group, prompts, samples = rollout(2), channel("prompts"), channel("samples")
    brought = []

    def bring(group, rank):
        brought.append((group.role, rank))
        group.on(rank).update_weights(17).wait()
        return "weights v17"

    cluster.before_resume = bring
    prompts.put_many(range(120))
    prompts.close()
    kill(group, 1, after=0.5)
    began = time.monotonic()
    call = group.generate(prompts, samples)
    found = list(samples)
    counts = call.wait()
    assert time.monotonic() - began < 15
    assert sorted(item for item, _ in found) == list(range(120))
    assert {rank for _, rank in found} == {0, 1}
    assert len(counts) == 2
    assert sum(counts) < 120  # what the dead process had done is in the channel, but not in its successor's count
    assert brought == [("rollout", 1)]
    assert group.version().wait() == [0, 17]
    [incident] = incidents
    assert re.fullmatch(r"rollout\[1\] on node-0 died \(.*\) while in generate: restarted with weights v17 in \d+\.\d s",
                        str(incident))
    assert incident.action == "restarted"
    log = (cluster.logs / "rollout-1.log").read_text()
    assert "a new process for rollout[1], the one before has died (start number 2)" in log


def test_calls_keep_their_order(rollout, channel):
    """Those that were open, and those that were issued while there was no process."""
    group, said = rollout(), channel("said")
    calls = [group.say("a", said, 1.5), group.say("b", said)]
    kill(group, after=0.3)
    time.sleep(0.6)
    calls.append(group.say("c", said))
    gather(calls)
    assert [call.wait() for call in calls] == [["a"], ["b"], ["c"]]
    assert list(said) == ["a", "b", "c"]


def test_a_rank_that_dies_idle_is_there_for_the_next_call(rollout, until, incidents):
    group = rollout()
    pid = group.pid().wait()[0]
    os.kill(pid, signal.SIGKILL)
    until(lambda: incidents, 30)
    assert group.pid().wait()[0] != pid
    assert "while in no call, the last was pid" in incidents[0].what


def test_two_ranks_at_once_and_one_of_them_again(rollout, incidents, until):
    group = rollout(2)
    calls = group.sleep(4)
    for rank in (0, 1):
        kill(group, rank)
    until(lambda: len(incidents) == 2, 30)
    before = [kill(group, 0)]
    pids = calls.wait(30)
    assert len(set(pids)) == 2
    assert before[0] not in pids
    assert sorted(incident.rank for incident in incidents if incident.action == "restarted")[:2] == [0, 0]


def test_a_control_call_ends_with_the_process_it_was_made_to(rollout, until, incidents):
    group = rollout()
    call = group.beside(20)
    kill_soon = group.sleep(0.0).wait()[0]
    os.kill(kill_soon, signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"rollout\[0\] on node-0 died .* while in beside"):
        call.wait()
    until(lambda: incidents, 30)
    assert group.beside().wait() != [kill_soon]


def test_a_copy_of_a_group_in_another_worker_finds_the_new_process(rollout, launch, until, incidents):
    group, other = rollout(), launch(Rollout, role="other")
    stale = group.pid().wait()
    assert other.ask(group, "pid").wait() == [stale]
    waits, asks = other.sleep(2.0), other.ask(group, "pid")  # the copy is made now, and used afterwards
    kill(group)
    until(lambda: incidents, 30)
    fresh = group.pid().wait()
    assert fresh != stale
    assert asks.wait() == [fresh]
    assert waits.done()


def test_a_rank_that_dies_while_it_is_made(launch, incidents, tmp_path):
    (tmp_path / "die-0").touch()
    group = launch(Rollout, 1, tmp_path, role="rollout", restartable=True)
    group.ready(20)
    assert group.pid().wait()[0] > 0
    assert "while in __init__" in incidents[0].what


def test_a_rank_that_dies_while_it_is_started_again(rollout, incidents, tmp_path):
    (tmp_path / "die-1").touch()
    group = rollout(1, tmp_path)
    kill(group)
    assert group.sleep(0.1).wait()[0] > 0
    assert [incident.action for incident in incidents] == ["restarted"]
    assert len(list(tmp_path.glob("made-*"))) == 3


def test_what_a_new_process_needs_may_fail_to_come_at_first(rollout, cluster, incidents):
    group = rollout()
    tries = []

    def bring(group, rank):
        tries.append(rank)
        if len(tries) == 1:
            raise RunError("nobody has weights")
        return ""

    cluster.before_resume = bring
    kill(group)
    assert group.sleep(0.1).wait()[0] > 0
    assert tries == [0, 0]
    assert [incident.detail for incident in incidents] == [""]


# ---- given up ----


def test_what_a_new_process_needs_raises_what_no_retry_helps_against(rollout, cluster, incidents, until):
    group = rollout()

    def bring(group, rank):
        return {}["weights"]

    cluster.before_resume = bring
    call = group.sleep(20)
    kill(group)
    with pytest.raises(WorkerError, match=r"rollout\[0\] on node-0 failed in before_resume: KeyError: 'weights'") as caught:
        call.wait()
    assert isinstance(caught.value.cause, KeyError)
    until(lambda: incidents, 30)
    assert [incident.action for incident in incidents] == ["gave up"]


def test_an_incident_that_cannot_be_told_is_dealt_with_all_the_same(rollout, cluster, incidents, caplog):
    def refuse(incident):
        raise RunError("the disk is full")

    cluster.on_incident = refuse
    group = rollout()
    before = group.pid().wait()
    kill(group)
    assert group.sleep(0.1).wait() != before
    kill(group)
    assert group.sleep(0.1).wait() != before
    assert "an incident could not be told: rollout[0] on node-0 died" in caplog.text


def test_a_constructor_that_raises_is_not_tried_again(rollout, channel, incidents, tmp_path, until):
    (tmp_path / "raise-1").touch()
    group, said = rollout(1, tmp_path), channel("said")
    call = group.say("a", said, 20)
    began = time.monotonic()
    kill(group)
    with pytest.raises(WorkerError, match=r"rollout\[0\] on node-0 failed in __init__: ValueError: the model is gone") as caught:
        call.wait()
    assert time.monotonic() - began < 10
    assert "in __init__\n    raise ValueError" in caught.value.remote_traceback
    with pytest.raises(ChannelBrokenError, match="the model is gone"):
        said.get(timeout=5)
    until(lambda: incidents, 30)
    assert [incident.action for incident in incidents] == ["gave up"]
    with pytest.raises(WorkerError, match="the model is gone"):
        group.pid().wait()


def test_restarts_that_are_used_up(rollout, launch, channel, cluster, incidents, until, monkeypatch):
    monkeypatch.setattr(cluster._supervision._state, "restarts", 1)
    group, other, said = rollout(), launch(Rollout, role="other"), channel("said")
    group.say("a", said, 20)
    kill(group)
    until(lambda: incidents, 30)
    waiting = other.sleep(8)  # whoever waits for something else is told too
    kill(group)
    with pytest.raises(WorkerDiedError, match=r"rollout\[0\] on node-0 died \(.*; cluster.restarts=1 .*\) while in say"):
        waiting.wait()
    with pytest.raises(ChannelBrokenError, match=r"rollout\[0\]"):
        said.get(timeout=5)
    assert [incident.action for incident in incidents] == ["restarted", "gave up"]
    assert other.pid().wait()  # those that live go on, to save what can be saved


# ---- stateful roles ----


def test_a_stateful_role_is_launched_again_by_whoever_runs_it(launch, cluster, incidents):
    actor = launch(Rollout, 2, role="actor")
    pids = actor.pid().wait()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerDiedError) as caught:
        actor.sleep(10).wait()
    assert cluster.may_recover(caught.value)
    assert not cluster.may_recover(RunError("something else"))
    [again] = cluster.relaunch("actor")
    try:
        again.ready()
        fresh = again.pid().wait()
        assert not set(fresh) & set(pids)
        assert again.beside().wait() == fresh
    finally:
        cluster.stop(again)
        cluster.launch("actor", Rollout, [[0]])  # for the fixture to stop


# ---- standing still ----


def test_a_stall_is_told_with_everybodys_stack(launch, cluster, until):
    group, other = launch(Rollout, 2, role="sleeper"), launch(Rollout, role="other")
    group.ready()
    other.ready()
    seen, state = [], SupervisorState(3, stall_timeout=1.0)
    stall = StallWatch(cluster._stores["node-0"], lambda: [group, other], 1.0, state.handle, seen.append)
    try:
        call = group.sleep(4)
        until(lambda: seen, 4)
        call.wait()
        time.sleep(1.5)  # nothing is open: that is no stall
    finally:
        stall.stop()
    [incident] = seen
    assert str(incident).startswith("nothing has happened for 1 s in sleeper.sleep: stalled with stacks in ")
    for name in ("sleeper-0", "sleeper-1", "other-0"):
        path = cluster.logs / f"{name}.stacks.txt"
        assert str(path) in incident.detail
    assert "in sleep" in (cluster.logs / "sleeper-1.stacks.txt").read_text()


# ---- signals ----


def test_a_signal_to_all_processes_is_for_the_driver(script, survivors):
    run = script("""
import os, signal, subprocess, time
from pathlib import Path
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.worker import Worker

class Busy(Worker):
    def ping(self):
        child = subprocess.Popen(["sleep", "60"])
        child.terminate()  # what a worker starts can be ended by SIGTERM
        return os.getpid(), child.wait(5)

came = []
signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
with Cluster.start("cpu:2", directory=Path("logs")) as cluster:
    group = cluster.launch("busy", Busy, [[0]])
    before = group.ping().wait()
    print("ready", flush=True)
    while not came:
        time.sleep(0.05)
    time.sleep(1.0)
    Channel("some").put(1)
    print(group.ping().wait() == before, Channel("some").get(), before[0][1], flush=True)
    time.sleep(300)
""")
    assert run.line() == "ready"
    family, files = run.family(), run.files()
    for process in family:
        process.terminate()
    os.killpg(run.process.pid, signal.SIGTERM)
    assert run.line() == "True [1] -15"
    assert "Current thread" in (run.directory / "logs" / "busy-0.log").read_text()
    run.process.kill()
    assert survivors(family, 10) == []
    assert not any(file.exists() for file in files)

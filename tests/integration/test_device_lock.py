"""Roles that share devices, in real processes: turns, order, overlapping calls, ranks that meet, deaths."""

from __future__ import annotations

import os
import signal
import time

import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import WorkerDiedError, WorkerError
from rlinf_cli.flow.handle import gather
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, concurrent, control, on_device

pytestmark = pytest.mark.integration


class Machine(Worker):
    """Writes down who was on its device when; `memory` is a file a device, which holds who is loaded there."""

    def __init__(self, memory):
        self.memory, self.moves = memory, []
        self.occupied = [memory / f"device-{device}" for device in self.devices]

    def _write(self, what):
        line = f"{time.monotonic():.6f} {self.role}[{self.rank}] {what}\n".encode()
        for path in self.occupied:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, line)
            os.close(file)

    def onload(self):
        self._write("onload")
        return 1000

    def offload(self):
        self._write("offload")
        return 700

    @control
    def pid(self):
        return os.getpid()


class Rollout(Machine):
    @concurrent
    @on_device
    def generate(self, prompts: In[int], samples: Out[int]):
        self._write("begin")
        for [lease] in prompts.leases(1):
            time.sleep(0.02)
            samples.put(lease.item, settles=[lease])
        self._write("end")


class Reward(Worker):
    def score(self, samples: In[int], scored: Out[int]):
        for item in samples:
            scored.put(item + 100)


class Actor(Machine):
    @on_device
    def train(self, scored: In[int]):
        self._write("begin")
        self._meet()
        items = sorted(scored) if self.rank == 0 else []
        self._meet()
        time.sleep(0.02)
        self._write("end")
        return items

    @on_device
    def fail(self):
        raise ValueError("not finite")

    @on_device
    def last(self):
        """In its own time."""
        self._write("begin")
        time.sleep(30)

    def _meet(self):
        """As in a collective operation: no rank goes on before both are there."""
        meeting = Channel(f"{self.memory.name}-meeting")
        meeting.put(None, key=1 - self.rank)
        meeting.get(key=self.rank, timeout=20)


class Step:
    """Rollout, reward and actor as a workflow calls them."""

    def __init__(self, rollout, reward, actor, name):
        self.name = name
        self.channels = [Channel(f"{name}-{kind}") for kind in ("prompts", "samples", "scored")]
        self.prompts, self.samples, self.scored = self.channels
        self.rollout, self.reward, self.actor = rollout, reward, actor

    def feed(self, count=4):
        self.prompts.put_many(list(range(count)))
        self.prompts.close()

    def run(self, count=4):
        self.feed(count)
        calls = [self.rollout.generate(self.prompts, self.samples), self.reward.score(self.samples, self.scored)]
        return [*calls, self.actor.train(self.scored)]


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def roles(cluster, memory, _classes_of_tests_can_be_sent):
    """Rollout and actor on both devices, the reward, which computes on none, wherever."""
    placed = (("rollout", Rollout, [[0], [1]]), ("reward", Reward, [[0]]), ("actor", Actor, [[0], [1]]))
    groups = [cluster.launch(role, worker, devices, *[memory] * (role != "reward"), restartable=role == "rollout")
              for role, worker, devices in placed]
    for group in groups:
        group.ready()
    yield groups
    for group in groups:
        cluster.stop(group)


def history(memory, device=0):
    """Who did what on a device: `[("rollout[0]", "begin"), ...]`"""
    path = memory / f"device-{device}"
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(line.split()[1:]) for line in lines]


def check(memory, device=0):
    """On the device there is never one role at work while another one is loaded, and nobody works who is not loaded."""
    loaded, working = {"rollout", "actor"}, []
    for who, what in history(memory, device):
        role = who.partition("[")[0]
        if what == "begin":
            working.append(role)
            assert loaded == {role}, f"{who} works while {loaded} are loaded"
        elif what == "end":
            working.remove(role)
        elif what == "onload":
            assert role not in loaded
            loaded.add(role)
        else:
            assert role in loaded
            assert role not in working
            loaded.remove(role)


def test_steps_in_turn(roles, memory):
    """Calls of several steps are issued at once, as when two of them are open, and the ranks of the actor meet in theirs."""
    before = len(history(memory))
    steps = [Step(*roles, f"turns-{number}") for number in range(3)]
    calls = [step.run() for step in steps]
    gather([call for step in calls for call in step])
    assert [train.wait()[0] for _, _, train in calls] == [[100, 101, 102, 103]] * 3
    for device in (0, 1):
        check(memory, device)
        begun = [who.partition("[")[0] for who, what in history(memory, device)[before:] if what == "begin"]
        assert begun == ["rollout", "actor"] * 3
    last = calls[2][2]
    assert all(timing.kinds["wait_lock"] > 0.02 for timing in last.timings())
    assert [[(switch.kind, switch.size) for switch in rank] for rank in last.switches()] == [
        [("offload", 700), ("onload", 1000)]] * 2, "since the call before"
    beside = roles[0].pid()
    beside.wait()
    assert not any(beside.switches()), "what it has moved is told by its next turn, whose answer is read"


def test_overlapping_calls_and_a_consumer_that_is_issued_first(roles, memory, until):
    step, later = Step(*roles, "first"), Step(*roles, "later")
    calls = [roles[0].generate(later.prompts, later.samples), roles[2].train(step.scored),
             roles[1].score(step.samples, step.scored), roles[0].generate(step.prompts, step.samples)]
    before = len(history(memory))
    for one in (later, step):
        one.prompts.put_many(list(range(4)), wait=True)
    until(lambda: history(memory)[before:].count(("rollout[0]", "begin")) == 2)  # neither ends before its prompts do
    step.prompts.close()
    later.prompts.close()
    gather(calls)
    assert calls[1].wait()[0] == [100, 101, 102, 103]
    check(memory)
    assert history(memory)[-1] == ("actor[0]", "end")


def test_a_call_that_raises_lets_go_and_the_others_go_on(roles, memory):
    with pytest.raises(WorkerError, match="not finite"):
        roles[2].fail().wait()
    step = Step(*roles, "raises")
    assert step.run()[2].wait()[0] == [100, 101, 102, 103]
    check(memory)


def test_a_rank_that_is_started_again_takes_up_its_turn(roles, memory, until):
    """The actor, which is next, waits for it: it takes what that call makes."""
    step = Step(*roles, "started-again")
    before = len(history(memory))
    calls = step.run(40)
    until(lambda: ("rollout[0]", "begin") in history(memory)[before:])
    os.kill(roles[0].on(0).pid().wait()[0], signal.SIGKILL)
    assert calls[2].wait()[0] == list(range(100, 140))
    order = [entry for entry in history(memory)[before:] if entry[1] in ("begin", "end")]
    assert order == [("rollout[0]", "begin")] * 2 + [("rollout[0]", "end"), ("actor[0]", "begin"), ("actor[0]", "end")]


def test_a_holder_is_killed(cluster, roles, memory, until):
    """The trainer's second rank dies in its call: the driver hears of it, launches the trainer anew, and everybody goes on."""
    rollout, reward, _ = roles
    trainer = cluster.launch("trainer", Actor, [[0], [1]], memory)
    pids = trainer.pid().wait()
    last = trainer.last()
    until(lambda: ("trainer[0]", "begin") in history(memory))
    waiting = Step(rollout, reward, trainer, "killed")
    waiting.feed()
    generate = rollout.generate(waiting.prompts, waiting.samples)
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        last.wait()
    assert not generate.done(), "who will compute on these devices next is for the driver to say"
    cluster.stop(trainer)
    generate.wait()
    again = cluster.launch("trainer", Actor, [[0], [1]], memory)
    try:
        assert Step(rollout, reward, again, "again").run()[2].wait()[0] == [100, 101, 102, 103]
    finally:
        cluster.stop(again)

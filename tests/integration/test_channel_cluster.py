"""Channels between the workers of a real cluster."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelBrokenError, WorkerDiedError, WorkerError
from rlinf_cli.flow.worker import Worker

pytestmark = pytest.mark.integration


class Source(Worker):
    def produce(self, name, count, size):
        out = Channel(name)
        for number in range(count):
            out.put(np.full(size, number, np.float32))
        out.flush()
        return os.getpid()

    def produce_and_die(self, name, count, size):
        self.produce(name, count, size)
        os.kill(os.getpid(), signal.SIGKILL)


class Sink(Worker):
    def consume(self, name, count):
        return [float(item.mean()) for item in Channel(name).get(count, at_least=count, timeout=60)]

    def wait_for(self, name):
        try:
            Channel(name).get(timeout=60)
        except ChannelBrokenError as error:
            return str(error)
        return None


class Scorer(Worker):
    def score(self, jobs, results, mood=""):
        """One result an item; an item that is the `mood` is too much for it."""
        scored = Channel(results)
        for [lease] in Channel(jobs).leases(1):
            if mood and lease.item[0] == mood:
                os.kill(os.getpid(), signal.SIGKILL) if mood == "kill" else self.fail()
            scored.put((self.role, lease.item[0]), settles=[lease])

    def fail(self):
        raise ValueError("too much")


@pytest.fixture(scope="module")
def cluster(cluster):
    """The session's; what is launched here ends with this module, and its deaths are no news to others."""
    before = set(cluster._groups)
    yield cluster
    for role in set(cluster._groups) - before:
        cluster.stop(cluster._groups[role])


@pytest.fixture(scope="module")
def sink(cluster):
    return cluster.launch("sink", Sink, [[1]])


@pytest.mark.parametrize("size", [10, 1_000_000])
def test_from_worker_to_worker(cluster, sink, size):
    source = cluster.launch(f"source-{size}", Source, [[0]])
    name = f"step-{size}"
    produced, consumed = source.produce(name, 20, size), sink.consume(name, 20)
    produced.wait(60)
    assert consumed.wait(60) == [[float(number) for number in range(20)]]
    assert Channel(name).drop() == 0


def test_between_the_driver_and_a_worker(sink):
    inbox = Channel("from-driver")
    inbox.put_many([np.full(100_000, 7.0), np.full(3, 8.0)])
    assert sink.consume("from-driver", 2).wait(60) == [[7.0, 8.0]]


def test_what_a_killed_worker_has_put_is_there_and_the_rest_is_told(cluster, sink):
    mortal = cluster.launch("mortal", Source, [[0]])
    mortal.ready()
    Channel("left").declare(["mortal[0]"])
    waiting = sink.wait_for("left")
    dying = mortal.produce_and_die("kept", 5, 100_000)
    with pytest.raises(WorkerDiedError):
        dying.wait(60)
    assert waiting.wait(60) == ["mortal[0] died"]
    assert sink.consume("kept", 5).wait(60) == [[0.0, 1.0, 2.0, 3.0, 4.0]]


@pytest.mark.parametrize("mood", ["kill", "raise"])
def test_what_a_worker_did_not_finish_another_one_does(cluster, mood):
    """Whether its process dies or its call fails."""
    jobs, results = Channel(f"jobs-{mood}"), Channel(f"results-{mood}")
    jobs.put_many([(item, np.full(100_000, 1.0)) for item in ("a", mood, "b")])
    jobs.close()
    first = cluster.launch(f"{mood}-first", Scorer, [[0]])
    with pytest.raises(WorkerDiedError if mood == "kill" else WorkerError):
        first.score(jobs.name, results.name, mood).wait(60)
    cluster.launch(f"{mood}-second", Scorer, [[1]]).score(jobs.name, results.name).wait(60)
    assert results.get(9) == [(f"{mood}-first", "a"), (f"{mood}-second", mood), (f"{mood}-second", "b")]
    assert jobs.drop() == 0

"""Channels between the workers of a real cluster."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.cluster import Cluster
from rlinf_cli.flow.errors import ChannelBrokenError, WorkerDiedError
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


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster.start("cpu:2", directory=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


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

"""Weights between real processes: engines die while they are sent, and their successors get them."""

import os
import signal
import time
from pathlib import Path

import pytest
import torch

from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import WorkerError
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_delivery import deliver
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.flow.worker import Worker, control
from rlinf_cli.models.checksum import weights_checksum

pytestmark = pytest.mark.integration


def weights(version):
    return [(name, torch.full((200, 30), float(version))) for name in "abc"]


class Source(Worker):
    """A trainer, as far as weights are concerned."""

    def __init__(self):
        self._publisher = Publisher(Path(client().address.directory_on(self.node)), self.node)
        self._group = None

    def keep(self, engines):
        """As an actor that was given its engines long ago."""
        self._group = engines

    def publish(self, version):
        told = {}

        def send(manifest):
            told.update(deliver(self._group, manifest, 30))
            return told

        self._publisher.publish(version, weights(version), version > 0, send)
        return sorted(told)

    @control
    def send_weights(self, targets):
        return self._publisher.resend(lambda manifest: deliver(targets, manifest, 30))

    def close(self):
        self._publisher.close()


class Engine(Worker):
    def __init__(self):
        self._receiver, self._held, self._version = Receiver(client(), Path()), {}, -1

    @control
    def update_weights(self, manifest):
        if manifest.version == 13:
            raise ValueError("an unlucky number")
        self._held = {name: tensor.clone() for name, tensor in self._receiver.tensors(manifest)}
        sign = self.run_directory / f"dying-{self.role}-{self.rank}"
        if manifest.version == 2 and self.rank == 1 and not sign.exists():
            sign.with_suffix(".new").write_text(str(os.getpid()))
            sign.with_suffix(".new").rename(sign)
            time.sleep(60)
        self._version = manifest.version
        return weights_checksum(self._held.items())

    def holds(self):
        right = weights_checksum(weights(self._version)) == weights_checksum(self._held.items())
        return self._version if right else None


@pytest.fixture
def sending(cluster):
    """`sending(source)`: processes that are started again get their weights from it."""
    before, versions = cluster.before_resume, []

    def use(source):
        def hook(group, rank):
            versions.append(source.send_weights(group.on(rank)).wait(30)[0])
            return f"weights v{versions[-1]}"

        cluster.before_resume = hook
        return versions

    yield use
    cluster.before_resume = before


def test_an_engine_that_dies_during_an_update_is_followed_by_one_with_these_weights(cluster, launch, sending, until):
    """Scenario F2."""
    source, engines = launch(Source, role="source"), launch(Engine, 2, role="engine", restartable=True)
    versions = sending(source)
    source.keep(engines).wait()
    assert source.send_weights(engines.on(0)).wait() == [-1]
    assert source.publish(1).wait() == [["engine[0]", "engine[1]"]]
    publishing, sign = source.publish(2), cluster.logs.parent / "dying-engine-1"
    until(sign.exists, 30)
    os.kill(int(sign.read_text()), signal.SIGKILL)
    assert publishing.wait(30) == [["engine[0]"]]
    until(lambda: versions, 30)
    assert versions == [2]
    assert engines.holds().wait(30) == [2, 2]
    # the group that the source was given names the dead process
    assert source.publish(3).wait(30) == [["engine[0]", "engine[1]"]]
    assert engines.holds().wait(30) == [3, 3]
    with pytest.raises(WorkerError, match="an unlucky number"):
        source.publish(13).wait(30)

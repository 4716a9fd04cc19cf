"""Scenario W2 with the real stores: engines on another node fetch a published version in buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.models.checksum import weights_checksum


class Counted:
    def __init__(self, read) -> None:
        self.read, self.lengths = read, []

    def __call__(self, file, offset, length):
        self.lengths.append(length)
        return self.read(file, offset, length)


@pytest.mark.parametrize("bucket", [1000, 1 << 16, 1 << 26])
def test_whatever_the_bucket(run, bucket):
    here, there = run.join("actor[0]"), run.join("rollout[0]", node="elsewhere")
    store = Counted(run.controller.read_segment)
    there.register_node_store(run.address.node, store)
    near, far = Receiver(here, Path()), Receiver(there, Path(), bucket)
    weights = [(f"layer.{number}", torch.randn(30, 50 + number)) for number in range(40)]
    publisher = Publisher(Path(run.address.directory_on(here.node)), here.node)

    def send(manifest):
        return {number: weights_checksum((name, tensor.clone()) for name, tensor in receiver.tensors(manifest))
                for number, receiver in enumerate((near, far))}

    manifest = publisher.publish(1, weights, False, send)
    assert manifest.size > 2.4e5
    assert max(store.lengths) <= bucket
    assert sum(store.lengths) <= manifest.size
    assert len(store.lengths) >= manifest.size // bucket
    publisher.close()


def test_a_node_that_nobody_reads_for_is_named(run):
    here, there = run.join("actor[0]"), run.join("rollout[0]", node="elsewhere")
    publisher = Publisher(Path(run.address.directory_on(here.node)), here.node)
    receiver = Receiver(there, Path())
    with pytest.raises(ChannelError, match=f"node elsewhere has no reader for node {here.node}"):
        publisher.publish(1, [("w", torch.ones(3))], False, lambda manifest: {"far": str(dict(receiver.tensors(manifest)))})
    publisher.close()

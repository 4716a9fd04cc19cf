"""Weights from a publisher to receivers: whole, checked, and without waste."""

import os

import numpy as np
import pytest
import torch

from rlinf_cli.errors import RunError
from rlinf_cli.flow.weights import ALIGNMENT, Publisher, Receiver, layout
from rlinf_cli.models.checksum import weights_checksum


def tensors(seed=0, dtype=torch.float32):
    noise = torch.Generator().manual_seed(seed)
    return [("embed", torch.randn(7, 5, generator=noise).to(dtype)), ("norm", torch.randn(3, generator=noise).to(dtype)),
            ("scalar", torch.tensor(1.5, dtype=dtype))]


class Engine:
    """Holds what it received, as an engine does: in storage of its own."""

    def __init__(self):
        self.receiver, self.held, self.version = Receiver(), {}, -1

    def take(self, manifest, region):
        self.version = manifest.version
        self.held = {name: tensor.clone() for name, tensor in self.receiver.tensors(manifest, None)}
        return weights_checksum(self.held.items())


def send_to(*engines):
    return lambda manifest, region: [engine.take(manifest, region) for engine in engines]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_engine_holds_what_was_published(tmp_path, dtype):
    engines, published = (Engine(), Engine()), tensors(dtype=dtype)
    Publisher(tmp_path).publish(3, published, False, send_to(*engines))
    for engine in engines:
        assert engine.version == 3
        assert list(engine.held) == ["embed", "norm", "scalar"]
        for name, tensor in published:
            assert engine.held[name].dtype == dtype
            assert torch.equal(engine.held[name], tensor)


def test_a_version_does_not_overwrite_the_one_before_it(tmp_path):
    publisher, receiver, seen = Publisher(tmp_path), Receiver(), []

    def send(manifest, region):
        seen.append(dict(receiver.tensors(manifest, None)))
        return [manifest.checksum]

    for version in range(2):
        publisher.publish(version, tensors(version), version > 0, send)
    assert torch.equal(seen[0]["embed"], tensors(0)[0][1])
    assert torch.equal(seen[1]["embed"], tensors(1)[0][1])


def test_regions_are_reused_and_grow(tmp_path):
    publisher, engine = Publisher(tmp_path), Engine()
    inodes = []
    for version in range(4):
        publisher.publish(version, tensors(version), version > 0, send_to(engine))
        inodes.append(os.stat(tmp_path / f"weights-{1 - version % 2}").st_ino)
    assert inodes[0] == inodes[2]
    assert inodes[1] == inodes[3]
    large = [("embed", torch.randn(3000, 50))]
    for version in (4, 5):
        publisher.publish(version, large, False, send_to(engine))
        assert torch.equal(engine.held["embed"], large[0][1])
    publisher.close()
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_holds_other_weights_is_named(tmp_path):
    with pytest.raises(RunError, match=r"rollout\[1\] holds other weights than the trainer sent for version 5"):
        Publisher(tmp_path).publish(5, tensors(), False, lambda manifest, region: [manifest.checksum, "0" * 16])


def test_a_step_that_left_the_weights_alone_is_an_error(tmp_path):
    publisher, engine = Publisher(tmp_path), Engine()
    publisher.publish(0, tensors(), False, send_to(engine))
    publisher.publish(0, tensors(), False, send_to(engine))
    with pytest.raises(RunError, match="stepped to version 1, but the weights did not change"):
        publisher.publish(1, tensors(), True, send_to(engine))


def test_a_remote_engine_reads_the_same_bytes(tmp_path, monkeypatch):
    import ray

    monkeypatch.setattr(ray, "get", lambda reference: reference)
    received = {}

    def send(manifest, region):
        frozen = region.copy()
        frozen.flags.writeable = False  # as Ray gives it
        received.update((name, tensor.clone()) for name, tensor in Receiver().tensors(manifest, [frozen]))
        return [manifest.checksum]

    Publisher(tmp_path).publish(0, tensors(), False, send)
    assert torch.equal(received["norm"], tensors()[1][1])


def test_tensors_that_are_not_contiguous_keep_their_values(tmp_path):
    engine, tensor = Engine(), torch.arange(12.0).view(3, 4).t()
    Publisher(tmp_path).publish(0, [("t", tensor)], False, send_to(engine))
    assert torch.equal(engine.held["t"], tensor)


def test_layout_aligns_every_tensor():
    entries, size = layout(tensors())
    assert [entry.offset % ALIGNMENT for entry in entries] == [0, 0, 0]
    assert [entry.length for entry in entries] == [140, 12, 4]
    assert size % ALIGNMENT == 0
    assert all(np.diff([entry.offset for entry in entries]) >= [entry.length for entry in entries[:-1]])


def test_a_full_shared_memory_is_one_sentence(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=r"no room for 0 MB of weights in .*No space left on device.*enlarge /dev/shm"):
        Publisher(tmp_path).publish(0, tensors(), False, send_to())
    assert list(tmp_path.iterdir()) == []

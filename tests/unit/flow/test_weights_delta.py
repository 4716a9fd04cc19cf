"""Between nodes only what has changed: fewer bytes, the same bits, and everything for who has another version."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlinf_cli.errors import RunError
from rlinf_cli.flow.segments import read_segment
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_delta import apply, difference
from rlinf_cli.flow.weights_layout import layout
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.models.checksum import weights_checksum


class Far:
    """An engine on another node: what it holds, and how many bytes it has read."""

    def __init__(self, directory, keep=True, bucket_bytes=10_000):
        self.node, self.read, self.longest = "elsewhere", 0, 0
        self._directory = directory
        self.receiver, self.held = Receiver(self, None, bucket_bytes, keep), {}

    def node_store(self, node):
        assert node == "here"

        def read(file, offset, length):
            data = read_segment(str(self._directory), file, offset, length)
            self.read, self.longest = self.read + len(data), max(self.longest, len(data))
            data.flags.writeable = False
            return data

        return read

    def take(self, manifest):
        self.read = 0
        self.held = {name: tensor.clone() for name, tensor in self.receiver.tensors(manifest)}
        return weights_checksum(self.held.items())


@pytest.fixture
def publisher(tmp_path):
    return Publisher(tmp_path, "here")


def weights(dtype=torch.bfloat16):
    noise = torch.Generator().manual_seed(0)
    return [("large", torch.randn(100, 150, generator=noise).to(dtype)), ("norm", torch.ones(37, dtype=dtype)),
            ("count", torch.tensor(3)), ("none", torch.zeros(0, 4, dtype=dtype)),
            ("other", torch.randn(70, 70, generator=noise).to(dtype))]


def changed(named, count):
    """`count` elements of the first tensor are others."""
    first = named[0][1].clone()
    first.view(-1)[:: first.numel() // count][:count] += 1
    return [(named[0][0], first), *named[1:]]


def send(*engines):
    return lambda manifest: {f"rollout[{number}]": engine.take(manifest) for number, engine in enumerate(engines)}


def holds(engine, named):
    return all(torch.equal(engine.held[name], tensor) for name, tensor in named) and len(engine.held) == len(named)


@pytest.mark.parametrize(("count", "most"), [(1, 10), (30, 200), (1500, 5000)])
def test_few_changes_are_few_bytes(tmp_path, publisher, count, most):
    far, before = Far(tmp_path), weights()
    after = changed(before, count)
    first = publisher.publish(0, before, False, send(far), delta=True)
    everything = sum(entry.length for entry in first.entries)
    assert far.read >= everything
    publisher.publish(1, after, True, send(far), delta=True)
    assert holds(far, after)
    assert 0 < far.read <= most < everything
    assert far.longest <= 10_000


def test_nothing_travels_when_nothing_changed(tmp_path, publisher):
    far = Far(tmp_path)
    for version in range(3):
        publisher.publish(version, weights(), False, send(far), delta=True)
    assert far.read == 0
    assert holds(far, weights())


def test_when_all_changed_everything_is_sent(tmp_path, publisher):
    far, after = Far(tmp_path), [(name, tensor + 1) for name, tensor in weights()]
    publisher.publish(0, weights(), False, send(far), delta=True)
    manifest = publisher.publish(1, after, True, send(far), delta=True)
    assert manifest.changes is None
    assert holds(far, after)


def test_many_versions_in_a_row(tmp_path, publisher):
    far, named = Far(tmp_path), weights(torch.float32)
    noise = np.random.default_rng(0)
    for version in range(8):
        named = changed(named, int(noise.integers(1, 3000)))
        publisher.publish(version, named, version > 0, send(far), delta=True)
        assert holds(far, named)


def test_one_who_was_started_again_gets_everything(tmp_path, publisher):
    old, new, before = Far(tmp_path), Far(tmp_path), weights()
    publisher.publish(0, before, False, send(old), delta=True)
    after = changed(before, 5)
    manifest = publisher.publish(1, after, True, send(old), delta=True)
    assert manifest.changes is not None
    publisher.resend(send(new))
    assert old.read < 50
    assert new.read >= manifest.entries[0].length
    assert holds(new, after)
    last = changed(after, 7)
    publisher.publish(2, last, True, send(old, new), delta=True)
    assert old.read == new.read <= 50
    assert holds(new, last)


def test_one_who_missed_a_version_gets_everything(tmp_path, publisher):
    always, sometimes, named = Far(tmp_path), Far(tmp_path), weights()
    publisher.publish(0, named, False, send(always, sometimes), delta=True)
    named = changed(named, 3)
    publisher.publish(1, named, True, send(always), delta=True)
    named = changed(named, 4)
    publisher.publish(2, named, True, send(always, sometimes), delta=True)
    assert holds(always, named)
    assert holds(sometimes, named)
    assert always.read < 50 < sometimes.read


def test_a_transfer_that_failed_midway_is_not_built_upon(tmp_path, publisher):
    far, named = Far(tmp_path), weights()
    publisher.publish(0, named, False, send(far), delta=True)
    node_store, far.node_store = far.node_store, lambda node: lambda *_: 1 / 0
    named = changed(named, 5)
    with pytest.raises(ZeroDivisionError):
        publisher.publish(1, named, True, send(far), delta=True)
    far.node_store = node_store
    publisher.resend(send(far))
    assert holds(far, named)
    assert far.read > 1000


def test_a_receiver_that_keeps_nothing_does_not_mind(tmp_path, publisher):
    far, named = Far(tmp_path, keep=False), weights()
    publisher.publish(0, named, False, send(far), delta=True)
    named = changed(named, 5)
    assert publisher.publish(1, named, True, send(far), delta=True).changes is not None
    assert holds(far, named)


def test_other_tensors_than_before_are_sent_whole(tmp_path, publisher):
    far = Far(tmp_path)
    publisher.publish(0, weights(), False, send(far), delta=True)
    larger = [("large", torch.randn(300, 150))]
    assert publisher.publish(1, larger, True, send(far), delta=True).changes is None
    assert holds(far, larger)


def test_what_was_damaged_on_the_way_is_noticed(tmp_path, publisher):
    far, named = Far(tmp_path), weights()
    publisher.publish(0, named, False, send(far), delta=True)
    far.receiver._kept[2] ^= 1
    with pytest.raises(RunError, match=r"rollout\[0\] holds other weights"):
        publisher.publish(1, changed(named, 5), True, send(far), delta=True)


def test_without_the_key_nothing_is_compared(tmp_path, publisher):
    far = Far(tmp_path, keep=False)
    for version in range(2):
        assert publisher.publish(version, weights(), False, send(far)).changes is None
    assert not (tmp_path / "weights-changes").exists()
    publisher.close()
    assert list(tmp_path.iterdir()) == []


@given(st.integers(0, 2**32), st.integers(1, 400), st.floats(0, 1),
       st.sampled_from(["float32", "bfloat16", "int64", "uint8", "bool"]))
def test_any_change_can_be_undone_from_its_bytes(seed, size, share, dtype):
    noise = np.random.default_rng(seed)
    tensor = torch.zeros(size, dtype=getattr(torch, dtype))
    entries, length = layout([("first", torch.zeros(3)), ("tensor", tensor)])
    old = noise.integers(0, 256, length, np.uint8)
    new = old.copy()
    where = np.repeat(noise.random(size) < share, tensor.element_size())
    new[entries[1].offset : entries[1].offset + entries[1].length][where] ^= noise.integers(0, 256, where.sum(), np.uint8)
    made = []
    changes = difference(old, new, entries, lambda room: made.append(np.zeros(room, np.uint8)) or made[0])
    if changes is not None:
        for change, entry in zip(changes, entries, strict=True):
            apply(change, made[0][change.offset : change.offset + change.length], entry, old)
        for entry in entries:
            span = slice(entry.offset, entry.offset + entry.length)
            assert np.array_equal(old[span], new[span])
        assert sum(change.length for change in changes) <= sum(entry.length for entry in entries)

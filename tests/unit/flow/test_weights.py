"""Weights from a publisher to receivers: whole, checked, and without waste."""

import itertools
import os
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.errors import RunError
from rlinf_cli.flow.segments import read_segment
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_layout import ALIGNMENT, buckets, layout
from rlinf_cli.flow.weights_receiver import Receiver
from rlinf_cli.models.checksum import weights_checksum
from rlinf_cli.models.merge import base_checksum

ADAPTER = Adapter(2, 0.5, ("w",))


def tensors(seed=0, dtype=torch.float32):
    noise = torch.Generator().manual_seed(seed)
    return [("embed", torch.randn(7, 5, generator=noise).to(dtype)), ("norm", torch.randn(3, generator=noise).to(dtype)),
            ("scalar", torch.tensor(1.5, dtype=dtype))]


class Client:
    """What a receiver knows of its process: its node, and how another one's shared memory is read."""

    def __init__(self, node, directory=None):
        self.node, self._directory, self.reads = node, directory, []

    def node_store(self, node):
        assert node == "here"

        def read(file, offset, length):
            self.reads.append(length)
            data = read_segment(str(self._directory), file, offset, length)
            data.flags.writeable = False  # as Ray gives it
            return data

        return read


class Engine:
    """Holds what it received, as an engine does: in storage of its own."""

    def __init__(self, client=None, model=None, **options):
        self.receiver, self.held, self.version = Receiver(client or Client("here"), model, **options), {}, -1

    def take(self, manifest):
        self.version = manifest.version
        self.held = {name: tensor.clone() for name, tensor in self.receiver.tensors(manifest)}
        return weights_checksum(self.held.items())


def send_to(*engines):
    return lambda manifest: {f"rollout[{number}]": engine.take(manifest) for number, engine in enumerate(engines)}


@pytest.fixture
def publisher(tmp_path):
    return Publisher(tmp_path, "here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_every_engine_holds_what_was_published(publisher, dtype):
    engines, published = (Engine(), Engine()), tensors(dtype=dtype)
    publisher.publish(3, published, False, send_to(*engines))
    for engine in engines:
        assert engine.version == 3
        assert list(engine.held) == ["embed", "norm", "scalar"]
        for name, tensor in published:
            assert engine.held[name].dtype == dtype
            assert torch.equal(engine.held[name], tensor)


def test_a_version_does_not_overwrite_the_one_before_it(publisher):
    receiver, seen = Receiver(Client("here"), None), []

    def send(manifest):
        seen.append(dict(receiver.tensors(manifest)))
        return {"rollout[0]": manifest.checksum}

    for version in range(2):
        publisher.publish(version, tensors(version), version > 0, send)
    assert torch.equal(seen[0]["embed"], tensors(0)[0][1])
    assert torch.equal(seen[1]["embed"], tensors(1)[0][1])


def test_who_reads_a_version_while_the_next_is_written_gets_the_one_it_reads(publisher):
    """Scenario S5, on the way to the engine: all old or all new."""
    versions = [[(str(number), torch.full((50,), float(version))) for number in range(40)] for version in range(2)]
    receiver, manifests = Receiver(Client("here"), None), []
    publisher.publish(0, versions[0], False, lambda manifest: manifests.append(manifest) or {})
    slow = receiver.tensors(manifests[0])
    seen = dict(itertools.islice(slow, 20))
    publisher.publish(1, versions[1], True, lambda manifest: manifests.append(manifest) or {})
    seen |= dict(slow)
    assert weights_checksum(seen.items()) == manifests[0].checksum
    assert weights_checksum(receiver.tensors(manifests[1])) == manifests[1].checksum
    assert all(torch.equal(seen[name], tensor) for name, tensor in versions[0])


def test_nothing_is_sent_again_before_there_is_any(publisher):
    assert publisher.resend(lambda manifest: pytest.fail("there is nothing to send")) == -1


@pytest.mark.parametrize("adapter", [None, ADAPTER], ids=["weights", "adapter"])
def test_an_engine_that_starts_later_gets_what_the_others_have(publisher, adapter):
    """Scenario F2."""
    first, late = Engine(), Engine()
    for version in range(3):
        publisher.publish(version, tensors(version), version > 0, send_to(first), adapter)
    assert publisher.resend(send_to(late)) == 2
    assert late.version == 2
    assert all(torch.equal(late.held[name], tensor) for name, tensor in tensors(2))
    with pytest.raises(RunError, match=r"rollout\[1\] holds other weights than the trainer sent for version 2"):
        publisher.resend(lambda manifest: {"rollout[1]": "0" * 16})


def test_sending_again_waits_for_a_publication_in_progress(publisher):
    late, order, sending = Engine(), [], threading.Event()

    def slowly(manifest):
        sending.set()
        again.join(0.1)
        order.append("published")
        return {}

    def resend():
        sending.wait()
        publisher.resend(send_to(late))
        order.append("sent again")

    publisher.publish(0, tensors(0), False, lambda manifest: {})
    again = threading.Thread(target=resend)
    again.start()
    publisher.publish(1, tensors(1), True, slowly)
    again.join()
    assert order == ["published", "sent again"]
    assert late.version == 1


def test_what_nobody_could_be_told_is_there_for_those_who_come(publisher):
    """All engines died while it was published."""
    late = Engine()
    publisher.publish(1, tensors(1), False, lambda manifest: {})
    assert publisher.resend(send_to(late)) == 1
    assert torch.equal(late.held["embed"], tensors(1)[0][1])


def test_regions_are_reused_and_grow(tmp_path, publisher):
    engine = Engine()
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


def test_an_engine_that_holds_other_weights_is_named(publisher):
    with pytest.raises(RunError, match=r"rollout\[1\] holds other weights than the trainer sent for version 5"):
        publisher.publish(5, tensors(), False, lambda manifest: {"rollout[0]": manifest.checksum, "rollout[1]": "0" * 16})


@pytest.mark.parametrize("adapter", [None, ADAPTER], ids=["weights", "adapter"])
def test_a_step_that_left_the_weights_alone_is_an_error(publisher, adapter):
    """Scenario W1."""
    engine = Engine()
    publisher.publish(0, tensors(), False, send_to(engine), adapter)
    publisher.publish(0, tensors(), False, send_to(engine), adapter)
    with pytest.raises(RunError, match="stepped to version 1, but the weights did not change"):
        publisher.publish(1, tensors(), True, send_to(engine), adapter)


@pytest.mark.parametrize("size", [1, 64, 100, 256, 300, 1 << 26])
def test_the_result_does_not_depend_on_the_size_of_buckets(tmp_path, publisher, size):
    """Scenario W2: engines on this node and on others."""
    near, far = Engine(bucket_bytes=size), Engine(Client("elsewhere", tmp_path), bucket_bytes=size)
    published = [*tensors(), ("empty", torch.zeros(0, 3)), ("flags", torch.tensor([True, False])), ("large", torch.randn(40, 30))]
    publisher.publish(0, published, False, send_to(near, far))
    for engine in near, far:
        assert list(engine.held) == [name for name, _ in published]
        assert all(torch.equal(engine.held[name], tensor) for name, tensor in published)
    reads = far.receiver._client.reads
    assert max(reads) <= size
    assert near.receiver._client.reads == []
    assert (len(reads) == 1) is (size > 10_000)


def test_a_bucket_is_tensors_side_by_side_or_a_larger_one():
    entries, _ = layout((name, torch.zeros(count, dtype=torch.uint8)) for name, count in
                        (("a", 60), ("b", 10), ("c", 300), ("d", 1), ("e", 64), ("f", 64)))
    grouped = [[entry.name for entry in bucket] for bucket in buckets(entries, 128)]
    assert grouped == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    assert [entry.name for bucket in buckets(entries, 1) for entry in bucket] == list("abcdef")
    assert len(list(buckets(entries, 1))) == 6
    assert len(list(buckets(entries, 10_000))) == 1
    assert list(buckets([], 10)) == []


def test_a_bucket_that_is_cut_short_does_not_pass(tmp_path, publisher):
    far = Engine(Client("elsewhere", tmp_path), bucket_bytes=64)

    def cut(manifest):
        os.truncate(manifest.path, 70)
        return {"rollout[0]": far.take(manifest)}

    with pytest.raises(RunError, match=r"rollout\[0\] holds other weights"):
        publisher.publish(0, [("embed", torch.ones(7, 5))], False, cut)


def test_an_adapter_is_told_with_its_factors(tmp_path, publisher):
    seen = []
    publisher.publish(2, tensors(), False, lambda manifest: seen.append(manifest) or {}, ADAPTER, "")
    publisher.publish(2, tensors(), False, lambda manifest: seen.append(manifest) or {})
    assert [manifest.adapter for manifest in seen] == [ADAPTER, None]


def test_an_adapter_of_another_model_is_refused_by_the_engine(tmp_path, publisher):
    own, other = tmp_path / "own", tmp_path / "other"
    for seed, model in enumerate((own, other)):
        model.mkdir()
        save_file(dict(tensors(seed)), model / "model.safetensors")
    right, wrong = Engine(model=own), Engine(model=other)
    base = base_checksum(own)
    publisher.publish(0, tensors(), False, send_to(right, right), ADAPTER, base)
    with pytest.raises(RunError, match=r"the adapter of version 0 belongs to other weights than those in .*other on here: "
                                       "give all nodes the same model"):
        publisher.publish(0, tensors(), False, send_to(wrong), ADAPTER, base)


def test_engines_get_weights_in_the_type_that_they_hold(tmp_path):
    engine, publisher = Engine(), Publisher(tmp_path, "here", "bfloat16")
    published = [*tensors(), ("count", torch.tensor(3))]
    publisher.publish(0, published, False, send_to(engine))
    assert {name: tensor.dtype for name, tensor in engine.held.items()} == {
        "embed": torch.bfloat16, "norm": torch.bfloat16, "scalar": torch.bfloat16, "count": torch.int64}
    assert torch.equal(engine.held["embed"], published[0][1].bfloat16())
    publisher.publish(0, published, False, send_to(engine), ADAPTER)
    assert engine.held["embed"].dtype == torch.float32


def test_a_step_too_small_for_that_type_is_a_step_all_the_same(tmp_path):
    engine, publisher = Engine(), Publisher(tmp_path, "here", "bfloat16")
    publisher.publish(0, tensors(), False, send_to(engine))
    moved = [(name, tensor * (1 + 1e-6)) for name, tensor in tensors()]
    publisher.publish(1, moved, True, send_to(engine))
    assert engine.version == 1
    with pytest.raises(RunError, match="stepped to version 2, but the weights did not change"):
        publisher.publish(2, moved, True, send_to(engine))


def test_tensors_that_are_not_contiguous_keep_their_values(publisher):
    engine, tensor = Engine(), torch.arange(12.0).view(3, 4).t()
    publisher.publish(0, [("t", tensor)], False, send_to(engine))
    assert torch.equal(engine.held["t"], tensor)


def test_layout_aligns_every_tensor():
    entries, size = layout(tensors())
    assert [entry.offset % ALIGNMENT for entry in entries] == [0, 0, 0]
    assert [entry.length for entry in entries] == [140, 12, 4]
    assert size % ALIGNMENT == 0
    assert all(np.diff([entry.offset for entry in entries]) >= [entry.length for entry in entries[:-1]])


def test_a_full_shared_memory_is_one_sentence(tmp_path, publisher, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(RunError, match=r"no room for 0 MB of weights in .*No space left on device.*enlarge /dev/shm"):
        publisher.publish(0, tensors(), False, send_to())
    assert list(tmp_path.iterdir()) == []


class Updated:
    """An engine that notes how it is told, and on what memory."""

    def __init__(self):
        self.calls, self.held = [], {}

    def update_weights(self, version, tensors, adapter=None, recompute=False):
        self.calls.append(("update", version, adapter, recompute))
        self.held = {name: tensor.clone() for name, tensor in tensors}

    def weights_checksum(self):
        return weights_checksum(self.held.items())


class Holding(Updated):
    def hold_weights(self, version, tensors, recompute=False):
        self.calls.append(("hold", version, recompute))
        self.held = dict(tensors)


@pytest.mark.parametrize(("engine", "node", "adapter", "call"), [
    (Holding, "here", None, ("hold", 4, True)),
    (Holding, "elsewhere", None, ("update", 4, None, True)),  # what was fetched is gone with its bucket
    (Holding, "here", ADAPTER, ("update", 4, ADAPTER, True)),
    (Updated, "here", None, ("update", 4, None, True)),
])
def test_only_whole_weights_of_the_same_node_are_used_where_they_are(tmp_path, publisher, engine, node, adapter, call):
    told, receiver = engine(), Receiver(Client(node, tmp_path), None)
    publisher.publish(4, tensors(), False, lambda manifest: {"rollout[0]": receiver.update(told, manifest, True)}, adapter)
    assert told.calls == [call]
    assert all(torch.equal(told.held[name], tensor) for name, tensor in tensors())


def test_many_tensors_of_all_sizes_are_copied_and_checked(tmp_path, monkeypatch):
    """More than one batch for the threads that copy, and for those that check."""
    monkeypatch.setattr("rlinf_cli.flow.weights.BATCH_BYTES", 1000)
    noise = torch.Generator().manual_seed(1)
    named = [(f"{number}", torch.randn(size, generator=noise)) for number, size in enumerate((1, 900, 0, 3, 249, 250, 251, 2))]
    named.append(("count", torch.tensor(5)))
    publisher, engine = Publisher(tmp_path, "here", "bfloat16"), Engine()
    manifest = publisher.publish(0, named, False, send_to(engine))
    assert manifest.checksum == weights_checksum((name, engine.held[name]) for name, _ in named)
    for name, tensor in named:
        assert torch.equal(engine.held[name], tensor.bfloat16() if tensor.is_floating_point() else tensor)
    publisher.close()

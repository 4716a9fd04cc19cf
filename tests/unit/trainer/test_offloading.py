"""What leaves the device while other roles have it: memory really falls, and everything comes back as it was."""

import gc
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlinf_cli.api import RunError, weights_checksum
from rlinf_torch import offloading
from rlinf_torch.offloading import CHUNK_BYTES, DeviceMemory, MappedMemory, give_back, move, resting_place

CPU = torch.device("cpu")
STATM = Path("/proc/self/statm")
needs_proc = pytest.mark.skipif(not STATM.exists(), reason="reads Linux's account of a process's memory")


def resident():
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def state_bytes(trainer):
    return sum(tensor.nbytes for tensor in trainer._optimiser.state().values())


@pytest.fixture(scope="module")
def large(make_model):
    """A model of 100 MB."""
    return make_model(hidden_size=512, intermediate_size=2304, num_hidden_layers=6, head_dim=64, num_attention_heads=8)


@needs_proc
def test_resident_memory_falls_by_what_is_offloaded(build, large, samples, make_items, grpo):
    trainer = build(large, offload="file")
    trainer.train_step(make_items(samples[:2]), grpo.loss, 1.0)
    weights, state = sum(tensor.nbytes for _, tensor in trainer.named_weights()), state_bytes(trainer)
    assert 90e6 < weights == state / 2
    checksum = weights_checksum(trainer.named_weights())
    gc.collect()
    give_back(CPU)
    before = resident()
    assert trainer.offload() == weights + state
    assert before - resident() > 0.97 * (weights + state)
    assert weights_checksum(trainer.named_weights()) == checksum
    before = resident()
    assert trainer.onload() == weights + state
    # the weights were read, and are resident as a part of the file, which is now gone
    assert state - 0.03 * weights < resident() - before < 1.03 * (weights + state)
    assert weights_checksum(trainer.named_weights()) == checksum


@needs_proc
@pytest.mark.parametrize("choice", ["auto", "keep"])
def test_on_a_cpu_nothing_moves_unless_asked(build, samples, make_items, grpo, choice):
    trainer = build(offload=choice)
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    places = [tensor.data_ptr() for _, tensor in trainer.named_weights()]
    assert (trainer.offload(), trainer.onload()) == (0, 0)
    assert [tensor.data_ptr() for _, tensor in trainer.named_weights()] == places


@pytest.mark.parametrize("keys", [{}, {"lora_rank": 2}, {"train_layers": 1}, {"lora_rank": 2, "dtype": "bfloat16",
                                                                              "frozen_dtype": "bfloat16"}])
def test_what_comes_back_is_what_left_to_the_last_bit(build, samples, make_items, grpo, tmp_path, keys):
    items, pair = make_items(samples), []
    for offload in ("file", "keep"):
        torch.manual_seed(0)
        pair.append(build(offload=offload, **keys))
    moved, still = pair
    for trainer in pair:
        trainer.train_step(items, grpo.loss, 1.0)
        trainer.accumulate(items[:5], grpo.loss, 1.0)
    assert moved.offload() > 0
    assert still.offload() == 0
    assert dict(moved.adapter_weights()).keys() == dict(still.adapter_weights()).keys()
    assert weights_checksum(moved.named_weights()) == weights_checksum(still.named_weights())
    for name, trainer in zip(("moved", "still"), pair, strict=True):
        (tmp_path / name).mkdir()
        trainer.save(tmp_path / name)
        trainer.onload()
        trainer.accumulate(items[5:], grpo.loss, 1.0)
    assert moved.finish(1.0) == still.finish(1.0)
    assert weights_checksum(moved.named_weights()) == weights_checksum(still.named_weights())
    written = sorted(path.relative_to(tmp_path / "moved") for path in (tmp_path / "moved").rglob("*.safetensors"))
    assert len(written) == 2
    for path in written:
        one, other = (load_file(tmp_path / name / path) for name in ("moved", "still"))
        assert weights_checksum(one.items()) == weights_checksum(other.items())


def test_offloading_twice_moves_once(build, samples, make_items, grpo):
    trainer = build(offload="file")
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    first = trainer.offload()
    assert first == 3 * sum(tensor.nbytes for _, tensor in trainer.named_weights())
    assert (trainer.offload(), trainer.onload(), trainer.onload()) == (0, first, 0)


def test_a_reference_moves_its_weights(build, samples):
    trainer = build(total_steps=0, offload="file")
    before = trainer.log_probs(samples, 1.0)
    assert trainer.offload() == sum(tensor.nbytes for _, tensor in trainer.named_weights())
    trainer.onload()
    assert [one.tolist() for one in trainer.log_probs(samples, 1.0)] == [one.tolist() for one in before]


def test_tied_weights_stay_one(build, make_model, samples, make_items, grpo):
    trainer = build(make_model(tie_word_embeddings=True), offload="file")
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    for shift in trainer.offload, trainer.onload:
        shift()
        model = trainer._policy.model
        assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()


def test_pinned_memory_is_for_a_gpu():
    cuda = torch.device("cuda")
    assert [type(resting_place(choice, cuda)).__name__ for choice in ("auto", "file", "keep")] == [
        "PinnedMemory", "MappedMemory", "NoneType"]
    assert [type(resting_place(choice, CPU)).__name__ for choice in ("auto", "file", "keep")] == [
        "NoneType", "MappedMemory", "NoneType"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_a_file_keeps_every_type_and_shape(dtype):
    memory = MappedMemory()
    tensors = [torch.randint(0, 2, shape).to(dtype) for shape in ((3, 5), (7,), (), (0, 4), (2, 3, 4))]
    kept = [tensor.clone() for tensor in tensors]
    views = [tensor.view(-1) for tensor in tensors]
    assert move(tensors, memory) == sum(tensor.nbytes for tensor in kept)
    assert all(torch.equal(one, other) and one.shape == other.shape for one, other in zip(tensors, kept, strict=True))
    # who held a view of a tensor keeps the place where it was
    assert all(view.data_ptr() != tensor.data_ptr() for view, tensor in zip(views, tensors, strict=True) if len(view))
    move(tensors, DeviceMemory(CPU))
    assert all(torch.equal(one, other) for one, other in zip(tensors, kept, strict=True))


def test_tensors_share_files_and_files_end_with_their_tensors():
    memory = MappedMemory()
    small = [memory.empty((16,), torch.float32) for _ in range(50)]
    big = memory.empty((CHUNK_BYTES // 4 + 1,), torch.float32)
    assert len(memory._files) == 2
    for number, tensor in enumerate(small):
        tensor.fill_(number)
    memory.settle()
    assert [float(tensor.sum()) for tensor in small] == [16.0 * number for number in range(50)]
    del big
    assert len(memory._files) == 1
    del small, tensor
    assert len(memory._files) == 0


def test_no_room_says_where(monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(offloading.os, "posix_fallocate", full)
    monkeypatch.setattr(offloading.tempfile, "gettempdir", lambda: str(tmp_path))
    with pytest.raises(RunError, match=rf"no room for 0\.0336 GB in {tmp_path}, .*No space left on device.*TMPDIR"):
        MappedMemory().empty((4,), torch.float32)


def test_files_have_no_name_so_that_none_is_left_when_the_process_is_killed(monkeypatch, tmp_path):
    monkeypatch.setattr(offloading.tempfile, "tempdir", str(tmp_path))
    kept = MappedMemory().empty((1000,), torch.float32).fill_(1)
    assert list(tmp_path.iterdir()) == []
    mapped = Path("/proc/self/maps")
    assert not mapped.exists() or str(tmp_path) in mapped.read_text()
    assert float(kept.sum()) == 1000

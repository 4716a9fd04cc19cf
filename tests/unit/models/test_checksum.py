"""The checksum tells any two sets of weights apart and does not depend on how they are held."""

import time
import weakref

import numpy as np
import pytest
import torch

from rlinf_cli.models import checksum
from rlinf_cli.models.checksum import tensor_checksums, weights_checksum


@pytest.fixture
def weights():
    torch.manual_seed(0)
    return {"a": torch.randn(3, 4), "b": torch.randn(5).bfloat16(), "c": torch.tensor(7), "d": torch.zeros(0, 2)}


def test_it_does_not_depend_on_order_device_view_or_layout(weights):
    expected = weights_checksum(weights.items())
    assert weights_checksum(reversed(weights.items())) == expected
    assert weights_checksum((name, tensor.clone().requires_grad_(tensor.is_floating_point()))
                            for name, tensor in weights.items()) == expected
    turned = {**weights, "a": weights["a"].t().contiguous().t()}
    assert not turned["a"].is_contiguous()
    assert weights_checksum(turned.items()) == expected


def test_one_bit_of_any_tensor_changes_it(weights):
    expected = weights_checksum(weights.items())
    for name in ("a", "b", "c"):
        changed = {key: tensor.clone() for key, tensor in weights.items()}
        changed[name].view(-1)[:1].view(torch.uint8)[0] ^= 1
        assert weights_checksum(changed.items()) != expected


@pytest.mark.parametrize("change", [
    {"b": "moved"}, {"a": "turned"}, {"a": "typed"}, {"d": "gone"}, {"a": "swapped"},
])
def test_names_shapes_and_types_count(weights, change):
    (name, what), = change.items()
    changed = dict(weights)
    if what == "moved":
        changed["e"] = changed.pop(name)
    elif what == "turned":
        changed[name] = changed[name].reshape(4, 3)
    elif what == "typed":
        changed[name] = changed[name].view(torch.int32)
    elif what == "swapped":
        changed = {"a": weights["b"], "b": weights["a"], "c": weights["c"], "d": weights["d"]}
    else:
        del changed[name]
    assert weights_checksum(changed.items()) != weights_checksum(weights.items())


def test_large_tensors_are_read_in_place():
    large = torch.zeros(64, 1 << 20, dtype=torch.bfloat16)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        weights_checksum([("a", large), ("b", large[:32])])
        best = min(best, time.process_time() - began)
    # 200 MB: a copy alone would take longer than this
    assert best < 0.2


@pytest.mark.parametrize("size", [1, 50, 10**6])
def test_it_does_not_depend_on_what_is_made_ready_together(weights, monkeypatch, size):
    expected = weights_checksum(weights.items())
    monkeypatch.setattr(checksum, "BATCH_BYTES", size)
    assert weights_checksum(weights.items()) == expected


def test_only_a_batch_is_held_at_a_time(monkeypatch):
    monkeypatch.setattr(checksum, "BATCH_BYTES", 100)
    seen, most = [], []

    def passing():
        for number in range(20):
            tensor = torch.full((5,), float(number))
            seen.append(weakref.ref(tensor))
            most.append(sum(ref() is not None for ref in seen))
            yield str(number), tensor

    weights_checksum(passing())
    assert max(most) <= 11


def test_copies_are_filled_with_the_bytes(weights):
    copies = [np.zeros(tensor.nbytes, np.uint8) for tensor in weights.values()]
    assert tensor_checksums(weights.items(), copies) == tensor_checksums(weights.items())
    for copy, tensor in zip(copies, weights.values(), strict=True):
        assert copy.tobytes() == tensor.reshape(-1).view(torch.uint8).numpy().tobytes()

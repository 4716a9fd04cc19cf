"""Weights find their places, or the error names them."""

import pytest
import torch

from rlinf_torch.architecture import Architecture
from rlinf_torch.fused import allocate
from rlinf_torch.offloading import DeviceMemory
from rlinf_torch.places import Place, end_to_end, fill, named


@pytest.fixture
def architecture():
    return Architecture(vocabulary=11, hidden=8, intermediate=6, layers=2, heads=4, kv_heads=2, head_dim=6, eps=1e-6,
                        longest=64, tied=False, qkv_bias=True, output_bias=True, mlp_bias=True, qk_norm=True, rope={})


@pytest.fixture
def places(architecture):
    return allocate(architecture, torch.float32, DeviceMemory(torch.device("cpu"))).places


def random_weights(places):
    return {name: torch.randn(place.shape) for name, place in places.items()}


def test_what_is_written_is_read_back_bit_for_bit(places):
    weights = random_weights(places)
    fill(places, weights.items())
    found = dict(named(places))
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)


def test_places_do_not_overlap(places):
    assert all(place.view.numel() == torch.Size(place.shape).numel() for place in places.values())
    for number, place in enumerate(places.values()):
        place.view.fill_(number)
    assert all((place.view == number).all() for number, place in enumerate(places.values()))


def test_rotating_pairs_lie_side_by_side(architecture):
    weights = allocate(architecture, torch.float32, DeviceMemory(torch.device("cpu")))
    rows = torch.arange(24.0)[:, None].expand(24, 8)
    weights.places["model.layers.0.self_attn.q_proj.weight"].write(rows)
    assert weights.layers[0].qkv[:8, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9]


def test_tied_embeddings_have_one_place(architecture):
    from dataclasses import replace

    weights = allocate(replace(architecture, tied=True), torch.float32, DeviceMemory(torch.device("cpu")))
    assert "lm_head.weight" not in weights.places
    assert weights.head is weights.embedding


def test_missing_left_over_and_misshapen_are_named(places):
    weights = random_weights(places)
    weights.pop("model.norm.weight")
    weights["lm_head.bias"] = torch.zeros(11)
    weights["model.embed_tokens.weight"] = torch.zeros(8, 11)
    with pytest.raises(ValueError, match="missing: model.norm.weight; left over: lm_head.bias; wrong shape: "
                                         r"model.embed_tokens.weight \(8, 11\) instead of \(11, 8\)"):
        fill(places, weights.items())


def test_a_name_twice_is_left_over(places):
    weights = list(random_weights(places).items())
    with pytest.raises(ValueError, match=r"left over: model\.embed_tokens\.weight$"):
        fill(places, [*weights, weights[0]])


def test_long_lists_are_cut(places):
    with pytest.raises(ValueError, match=r"missing: .*, .*, .*, .* and \d+ more$"):
        fill(places, [])


def test_other_types_are_converted():
    place = Place((2,), torch.zeros(2, dtype=torch.bfloat16))
    fill({"a": place}, [("a", torch.tensor([1.0, 2.0]))])
    assert place.read().tolist() == [1, 2]


def test_rows_that_follow_one_another_are_one_tensor():
    whole = torch.arange(40.0).view(10, 4)
    joined = end_to_end([whole[1:3], whole[3:7]])
    assert torch.equal(joined, whole[1:7])
    assert joined.data_ptr() == whole[1:].data_ptr()
    assert end_to_end([whole[2:]]).data_ptr() == whole[2:].data_ptr()


@pytest.mark.parametrize("cut", ["a gap", "turned round", "columns", "another storage"])
def test_what_does_not_follow_is_not_joined(cut):
    whole = torch.arange(40.0).view(10, 4)
    assert end_to_end({"a gap": [whole[:2], whole[3:5]], "turned round": [whole[2:4], whole[:2]],
                       "columns": [whole[:2, :2], whole[2:4, :2]],
                       "another storage": [whole[:2], whole[2:4].clone()]}[cut]) is None

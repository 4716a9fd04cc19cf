"""Weights of a Llama-like model, laid out for few and large matrix products.

Query, key and value are one matrix, gate and up another. Rows of queries and keys are permuted so that the two numbers
that rotate together lie side by side: a rotation is then one complex product. Scores do not change, as queries and keys
are permuted alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from rlinf_torch.architecture import Architecture
from rlinf_torch.offloading import Memory
from rlinf_torch.places import Place, end_to_end

AS_STORED = {
    "input_norm": ("input_layernorm.weight",), "output": ("self_attn.o_proj.weight",),
    "output_bias": ("self_attn.o_proj.bias",), "post_norm": ("post_attention_layernorm.weight",),
    "gate_up": ("mlp.gate_proj.weight", "mlp.up_proj.weight"), "gate_up_bias": ("mlp.gate_proj.bias", "mlp.up_proj.bias"),
    "down": ("mlp.down_proj.weight",), "down_bias": ("mlp.down_proj.bias",),
}  # fmt: skip
"""What of a layer consists of whole weights as Hugging Face has them, one behind the other."""


@dataclass
class FusedLayer:
    """One block; a bias or norm that the model lacks is None."""

    input_norm: Tensor
    qkv: Tensor
    """[(heads + 2 kv_heads) head_dim, hidden]."""
    output: Tensor
    post_norm: Tensor
    gate_up: Tensor
    """[2 intermediate, hidden]."""
    down: Tensor
    qkv_bias: Tensor | None = None
    output_bias: Tensor | None = None
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    query_norm: Tensor | None = None
    key_norm: Tensor | None = None


@dataclass
class FusedWeights:
    """All weights (uninitialised when made), and where each lies: `places`, by Hugging Face name."""

    embedding: Tensor
    norm: Tensor
    head: Tensor
    layers: list[FusedLayer]
    places: dict[str, Place] = field(default_factory=dict)
    room: FusedWeights | None = None
    """Of weights that were laid `around` others: where those parts are that did not lie as they had to."""

    def tensors(self) -> list[Tensor]:
        """All of them, each once, in an order that the architecture decides."""
        outer = [self.embedding, self.norm] if self.head is self.embedding else [self.embedding, self.norm, self.head]
        inner = (getattr(layer, f.name) for layer in self.layers for f in fields(layer))
        return outer + [tensor for tensor in inner if tensor is not None]


@torch.inference_mode(False)
def allocate(a: Architecture, dtype: torch.dtype, memory: Memory) -> FusedWeights:
    """Room for the weights of an architecture, where a trainer can keep its parameters too."""
    def empty(*shape: int) -> Tensor:
        return memory.empty(shape, dtype)

    embedding = empty(a.vocabulary, a.hidden)
    head = embedding if a.tied else empty(a.vocabulary, a.hidden)
    return _placed(a, FusedWeights(embedding, empty(a.hidden), head, [_layer(a, empty) for _ in range(a.layers)]))


def around(a: Architecture, room: FusedWeights, tensors: Mapping[str, Tensor]) -> FusedWeights:
    """Weights of which those that lie in memory as the decoder has them are used there: the places of these tensors are
    the tensors themselves. All others, and those that do not fit, are in `room`."""

    def held(there: Tensor, *names: str) -> Tensor:
        fit = all(name in tensors and _fits(tensors[name], room.places[name]) for name in names)
        found = end_to_end([tensors[name] for name in names]) if fit else None
        return there if found is None else found

    def layer(number: int, made: FusedLayer) -> FusedLayer:
        return replace(made, **{part: held(getattr(made, part), *(f"model.layers.{number}.{name}" for name in names))
                                for part, names in AS_STORED.items() if getattr(made, part) is not None})

    embedding, norm = held(room.embedding, "model.embed_tokens.weight"), held(room.norm, "model.norm.weight")
    head = embedding if a.tied else held(room.head, "lm_head.weight")
    return _placed(a, FusedWeights(embedding, norm, head, [layer(*one) for one in enumerate(room.layers)], room=room))


def _fits(tensor: Tensor, place: Place) -> bool:
    return tuple(tensor.shape) == place.shape and tensor.dtype == place.view.dtype and tensor.device == place.view.device


def _placed(a: Architecture, weights: FusedWeights) -> FusedWeights:
    weights.places["model.embed_tokens.weight"] = _plain(weights.embedding)
    for number, layer in enumerate(weights.layers):
        weights.places.update({f"model.layers.{number}.{name}": place for name, place in _places(a, layer)})
    weights.places["model.norm.weight"] = _plain(weights.norm)
    if not a.tied:
        weights.places["lm_head.weight"] = _plain(weights.head)
    return weights


def _layer(a: Architecture, empty: Callable[..., Tensor]) -> FusedLayer:
    queries, fused = a.heads * a.head_dim, (a.heads + 2 * a.kv_heads) * a.head_dim
    return FusedLayer(
        empty(a.hidden), empty(fused, a.hidden), empty(a.hidden, queries), empty(a.hidden),
        empty(2 * a.intermediate, a.hidden), empty(a.hidden, a.intermediate),
        qkv_bias=empty(fused) if a.qkv_bias else None,
        output_bias=empty(a.hidden) if a.output_bias else None,
        gate_up_bias=empty(2 * a.intermediate) if a.mlp_bias else None,
        down_bias=empty(a.hidden) if a.mlp_bias else None,
        query_norm=empty(a.head_dim) if a.qk_norm else None,
        key_norm=empty(a.head_dim) if a.qk_norm else None)


def _places(a: Architecture, layer: FusedLayer) -> Iterator[tuple[str, Place]]:
    yield "input_layernorm.weight", _plain(layer.input_norm)
    yield from _attention(a, layer.qkv, "weight")
    yield "self_attn.o_proj.weight", _plain(layer.output)
    if layer.qkv_bias is not None:
        yield from _attention(a, layer.qkv_bias, "bias")
    if layer.output_bias is not None:
        yield "self_attn.o_proj.bias", _plain(layer.output_bias)
    if layer.query_norm is not None and layer.key_norm is not None:
        yield "self_attn.q_norm.weight", _rotating(layer.query_norm, 1)
        yield "self_attn.k_norm.weight", _rotating(layer.key_norm, 1)
    yield "post_attention_layernorm.weight", _plain(layer.post_norm)
    yield from _mlp(layer.gate_up, layer.down, "weight")
    if layer.gate_up_bias is not None and layer.down_bias is not None:
        yield from _mlp(layer.gate_up_bias, layer.down_bias, "bias")


def _attention(a: Architecture, fused: Tensor, kind: str) -> Iterator[tuple[str, Place]]:
    query, key, value = torch.split(fused, [a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.head_dim])
    yield f"self_attn.q_proj.{kind}", _rotating(query, a.heads)
    yield f"self_attn.k_proj.{kind}", _rotating(key, a.kv_heads)
    yield f"self_attn.v_proj.{kind}", _plain(value)


def _mlp(gate_up: Tensor, down: Tensor, kind: str) -> Iterator[tuple[str, Place]]:
    gate, up = gate_up.chunk(2)
    yield f"mlp.gate_proj.{kind}", _plain(gate)
    yield f"mlp.up_proj.{kind}", _plain(up)
    yield f"mlp.down_proj.{kind}", _plain(down)


def _plain(tensor: Tensor) -> Place:
    return Place(tuple(tensor.shape), tensor)


def _rotating(rows: Tensor, heads: int) -> Place:
    """Rows of `heads` heads: Hugging Face has all first numbers of the rotating pairs, then all second ones."""
    pairs = rows.view(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return Place(tuple(rows.shape), pairs.transpose(1, 2))

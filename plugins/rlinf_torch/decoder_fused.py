"""The engine's own decoder for Llama, Qwen2 and Qwen3: fused projections over a static cache in slots."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from rlinf_cli.api import UsageError, stored_weights
from rlinf_torch.architecture import Architecture, rotations
from rlinf_torch.fused import FusedLayer, FusedWeights, allocate, around
from rlinf_torch.offloading import DeviceMemory, Memory
from rlinf_torch.places import Place, fill, overwrite
from rlinf_torch.store import SlotStore

Attend = Callable[[int, Tensor], Tensor]
"""(layer, rotated queries, keys and values [N, heads + 2 kv_heads, head_dim]) -> [N, heads head_dim]."""


class FusedDecoder:
    """See `Decoder`. N below is the number of tokens of a call, laid end to end."""

    def __init__(self, architecture: Architecture, weights: FusedWeights, max_sequence: int, source: Path) -> None:
        self._a, self._weights, self._source = architecture, weights, source
        self.vocabulary, self.longest = architecture.vocabulary, architecture.longest
        self._device, self._dtype = weights.norm.device, weights.norm.dtype
        self._memory: Memory = DeviceMemory(self._device)
        """Where the weights are, and those that come will be."""
        self._spare: FusedWeights | None = None
        """Room for weights that are held, free to be written to again."""
        self._rotations = rotations(architecture, max_sequence, self._device)
        self._store = SlotStore(2 * architecture.layers, architecture.kv_heads, architecture.head_dim, self._dtype,
                                self._device)
        self._lay_out()

    @classmethod
    def load(cls, model: Path, architecture: Architecture, device: torch.device, dtype: torch.dtype,
             max_sequence: int) -> FusedDecoder:
        """Raises UsageError when the directory's weights do not fit its configuration."""
        weights = allocate(architecture, dtype, DeviceMemory(device))
        try:
            fill(weights.places, used_weights(model, weights))
        except ValueError as error:
            raise UsageError(f"model directory '{model}': {error}") from error
        return cls(architecture, weights, max_sequence, model)

    def reserve(self, slots: int, length: int) -> None:
        if self._store.grow(slots, length):
            self._lay_out()

    def free(self) -> int:
        a, freed = self._a, self._store.data.nbytes
        self._store = SlotStore(2 * a.layers, a.kv_heads, a.head_dim, self._dtype, self._device)
        self._lay_out()
        return freed

    def move(self, memory: Memory) -> int:
        moved, self._memory = allocate(self._a, self._dtype, memory), memory
        for there, here in zip(moved.tensors(), self._weights.tensors(), strict=True):
            there.copy_(here, non_blocking=True)
        memory.settle()
        self._weights = moved
        return sum(tensor.nbytes for tensor in moved.tensors())

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        self._store.copy(sources, targets, length)

    def stage(self, tensors: Iterable[tuple[str, Tensor]]) -> FusedWeights:
        staged = allocate(self._a, self._dtype, self._memory)
        fill(staged.places, tensors)
        self._memory.settle()
        return staged

    def hold(self, tensors: Iterable[tuple[str, Tensor]]) -> tuple[FusedWeights, int]:
        given = list(tensors)
        # takes no memory where it is not written to, but what is written to for the first time costs as much as the copy
        room = self._spare or allocate(self._a, self._dtype, self._memory)
        held = around(self._a, room, dict(given))
        there = overwrite(held.places, given)
        self._memory.settle()
        return held, there

    def adopt(self, staged: FusedWeights) -> None:
        self._spare, self._weights = self._weights.room, staged

    def places(self) -> Mapping[str, Place]:
        return self._weights.places

    def built_weights(self) -> Iterator[tuple[str, Tensor]]:
        return used_weights(self._source, self._weights)

    def prefill(self, tokens: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
        a, (count, width) = self._a, tokens.shape
        rows = (self._first_rows[slots][:, None] + self._arange[:width][None, :, None]).view(-1)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            self._rows[layer].index_copy_(0, rows, qkv[:, a.heads :].reshape(-1, a.head_dim))
            heads = qkv.view(count, width, -1, a.head_dim).transpose(1, 2)
            query, key, value = heads[:, : a.heads], heads[:, a.heads : -a.kv_heads], heads[:, -a.kv_heads :]
            # padding stands at the end, where no real token sees it
            mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=a.heads != a.kv_heads)
            return mixed.transpose(1, 2).reshape(count * width, -1)

        hidden = self._blocks(tokens.view(-1), self._rotations[:width].repeat(count, 1), attend)
        return self._logits(hidden[self._arange[:count] * width + lengths - 1])

    def decode(self, tokens: Tensor, positions: Tensor, span: int) -> Tensor:
        n = len(tokens)
        rows = (self._first_rows[:n] + positions[:, None]).view(-1)
        hidden_from = torch.where(self._arange[:span] <= positions[:, None], self._zero, self._never)
        if self._dtype == torch.float32:
            attend = self._products(n, span, rows, hidden_from)
        else:
            attend = self._fused_attention(n, span, rows, hidden_from)
        return self._logits(self._blocks(tokens, self._rotations[positions], attend))

    def _products(self, n: int, span: int, rows: Tensor, mask: Tensor) -> Attend:
        """Attention as two batched products: at one token a slot it is faster than the fused kernel, in float32 as
        exact."""
        a, batch = self._a, n * self._a.kv_heads
        mask = mask.repeat_interleave(a.kv_heads, 0)[:, None]

        def attend(layer: int, qkv: Tensor) -> Tensor:
            self._rows[layer].index_copy_(0, rows, qkv[:, a.heads :].reshape(-1, a.head_dim))
            query = qkv[:, : a.heads].reshape(batch, -1, a.head_dim)
            scores = torch.baddbmm(mask, query, self._keys[layer][:batch, :span].transpose(1, 2),
                                   alpha=a.head_dim**-0.5)
            return torch.bmm(scores.softmax(-1), self._values[layer][:batch, :span]).view(n, -1)

        return attend

    def _fused_attention(self, n: int, span: int, rows: Tensor, mask: Tensor) -> Attend:
        """The kernel that keeps scores in float32; queries of one key head stand in the place of positions."""
        a, mask = self._a, mask[:, None, None]

        def attend(layer: int, qkv: Tensor) -> Tensor:
            self._rows[layer].index_copy_(0, rows, qkv[:, a.heads :].reshape(-1, a.head_dim))
            query = qkv[:, : a.heads].reshape(n, a.kv_heads, -1, a.head_dim)
            keys, values = self._store.data[2 * layer : 2 * layer + 2, :n, :, :span]
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask).reshape(n, -1)

        return attend

    def _blocks(self, tokens: Tensor, rotation: Tensor, attend: Attend) -> Tensor:
        """Hidden states after the last block, [N, hidden]. `rotation`: complex64 [N, head_dim / 2]."""
        eps, width, rotation = self._a.eps, (self._a.hidden,), rotation[:, None]
        x = F.embedding(tokens, self._weights.embedding)
        for number, layer in enumerate(self._weights.layers):
            mixed = attend(number, self._project(F.rms_norm(x, width, layer.input_norm, eps), layer, rotation))
            x = _added(x, mixed, layer.output, layer.output_bias)
            gate, up = F.linear(F.rms_norm(x, width, layer.post_norm, eps), layer.gate_up,
                                layer.gate_up_bias).chunk(2, -1)
            x = _added(x, F.silu(gate).mul_(up), layer.down, layer.down_bias)
        return x

    def _project(self, x: Tensor, layer: FusedLayer, rotation: Tensor) -> Tensor:
        """Queries and keys (rotated) and values, [N, heads + 2 kv_heads, head_dim]."""
        a = self._a
        qkv = F.linear(x, layer.qkv, layer.qkv_bias).view(len(x), -1, a.head_dim)
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = qkv[:, : a.heads], qkv[:, a.heads : a.heads + a.kv_heads]
            query.copy_(F.rms_norm(query, (a.head_dim,), layer.query_norm, a.eps))
            key.copy_(F.rms_norm(key, (a.head_dim,), layer.key_norm, a.eps))
        rotating = qkv[:, : a.heads + a.kv_heads]
        pairs = torch.view_as_complex(rotating.float().view(*rotating.shape[:-1], -1, 2))
        if rotating.dtype == torch.float32:
            pairs.mul_(rotation)
        else:
            rotating.copy_(torch.view_as_real(pairs * rotation).flatten(-2))
        return qkv

    def _logits(self, x: Tensor) -> Tensor:
        return F.linear(F.rms_norm(x, (self._a.hidden,), self._weights.norm, self._a.eps), self._weights.head)

    def _lay_out(self) -> None:
        """Views of the store and row numbers, which follow its size."""
        data, store, kv = self._store.data, self._store, self._a.kv_heads
        self._rows = [pair.flatten(0, 3) for pair in torch.split(data, 2)]
        self._keys = list(data[0::2].flatten(1, 2).unbind())
        self._values = list(data[1::2].flatten(1, 2).unbind())
        # row of (slot, key or value, head) at position 0 in a layer's [2, slots, kv_heads, length] rows
        numbers = torch.arange(2 * store.slots * kv, device=self._device).view(2, store.slots, kv) * store.length
        self._first_rows = numbers.transpose(0, 1).reshape(store.slots, 2 * kv).contiguous()  # else, of one head, strided
        self._arange = torch.arange(max(store.length, store.slots), device=self._device)
        self._zero = torch.zeros((), dtype=self._dtype, device=self._device)
        self._never = torch.full((), -torch.inf, dtype=self._dtype, device=self._device)


def used_weights(model: Path, weights: FusedWeights) -> Iterator[tuple[str, Tensor]]:
    """A directory's weights that have a place: its files may hold more (a copy of a tied head, rotary frequencies)."""
    return (item for item in stored_weights(model) if item[0] in weights.places)


def _added(x: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x + inner @ weight.T + bias."""
    if bias is None:
        return torch.addmm(x, inner, weight.t())
    return F.linear(inner, weight, bias).add_(x)

"""The one file that touches the cache interface of `transformers` (written against 5.24: the model's argument is
`cache`, a layer's method `update(keys, values, ...)`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from rlinf_torch.store import SlotStore


@dataclass
class Plan:
    """What the current forward pass does with keys and values; shared by all layers."""

    slots: int = 0
    length: int = 0
    """Room that each store must have."""
    targets: Tensor = field(default_factory=lambda: torch.zeros(0))
    """Slots that the rows of a batch are written to, int64 [B]."""
    positions: Tensor | None = None
    """Position of the one token of each row, int64 [B]; None: rows are whole prompts, from position 0."""
    span: int = 0
    """Positions that are attended to."""

    def read(self, slots: Tensor) -> None:
        self.targets, self.positions = slots, None

    def extend(self, positions: Tensor, span: int) -> None:
        self.targets, self.positions, self.span = torch.arange(len(positions), device=positions.device), positions, span


class SlotLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer; their sizes are learnt at the first pass."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan
        self.stores: list[SlotStore] = []

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.stores = [SlotStore(1, states.shape[1], states.shape[3], states.dtype, states.device)
                       for states in (key_states, value_states)]
        self.grow()
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.stores:
            self.lazy_initialization(key_states, value_states)
        keys, values = (self._write(store.data[0], states)
                        for store, states in zip(self.stores, (key_states, value_states), strict=True))
        return keys, values

    def grow(self) -> None:
        for store in self.stores:
            store.grow(self._plan.slots, self._plan.length)

    def get_seq_length(self) -> int:
        return 0

    def get_max_length(self) -> int:
        return self._plan.length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (query_length if self._plan.positions is None else self._plan.span), 0

    def _write(self, data: Tensor, states: Tensor) -> Tensor:
        """Put [B, heads, S, dim] into their slots; what they attend to."""
        plan = self._plan
        if plan.positions is None:
            data[plan.targets, :, : states.shape[2]] = states
            return states
        data[plan.targets, :, plan.positions] = states[:, :, 0]
        return data[: len(states), :, : plan.span]


class SlotCache(Cache):  # type: ignore[misc]
    """A cache whose rows are the engine's slots."""

    def __init__(self, layers: int, plan: Plan) -> None:
        super().__init__(layers=[SlotLayer(plan) for _ in range(layers)])

    def grow(self) -> None:
        for layer in self.layers:
            layer.grow()

    def free(self) -> int:
        freed: int = sum(store.data.nbytes for layer in self.layers for store in layer.stores)
        for layer in self.layers:
            layer.stores = []
        return freed

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        for layer in self.layers:
            for store in layer.stores:
                store.copy(sources, targets, length)


def unsupported(config: Any, max_sequence: int) -> str:
    """Why a model's cache cannot be kept in slots; empty when it can."""
    if config.is_encoder_decoder:
        return "it is an encoder-decoder"
    for layer in DynamicCache(config=config).layers:
        if type(layer) is DynamicSlidingWindowLayer:
            if layer.sliding_window < max_sequence:
                return (f"its attention sees {layer.sliding_window} tokens, fewer than the {max_sequence} that prompt "
                        "and response may have together")
        elif type(layer) is not DynamicLayer:
            return f"it keeps its past in a {type(layer).__name__}"
    return ""


def run(model: Any, tokens: Tensor, positions: Tensor, mask: Tensor, cache: SlotCache, keep: Tensor | None) -> Tensor:
    """Logits of a forward pass; `mask` is additive, [B, 1, S, keys]; `keep`: the positions whose logits are wanted."""
    kept = {} if keep is None else {"logits_to_keep": keep}
    logits: Tensor = model(input_ids=tokens, position_ids=positions, attention_mask=mask, cache=cache, use_cache=True,
                           **kept).logits
    return logits

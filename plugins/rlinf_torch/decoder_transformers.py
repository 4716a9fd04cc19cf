"""A decoder around a `transformers` model, for families that the own decoder does not cover."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlinf_cli.api import UsageError, load_causal_lm
from rlinf_torch.offloading import DeviceMemory, Memory, move
from rlinf_torch.places import Place, fill, overwrite
from rlinf_torch.transformers_cache import Plan, SlotCache, run, unsupported

TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.25}
"""Largest difference of a logit, relative to their spread, between the model's own forward pass and one with slots."""


class TransformersDecoder:
    """See `Decoder`. Weights have the names that the model's modules give them (of tied ones the first)."""

    def __init__(self, model: Any, device: torch.device, source: Path) -> None:
        self._model, self._device, self._source = model.to(device), device, source
        self._dtype: torch.dtype = model.dtype
        self._memory: Memory = DeviceMemory(device)
        config = model.config.get_text_config(decoder=True)
        self.vocabulary: int = config.vocab_size
        self.longest: int = config.max_position_embeddings
        self._plan = Plan()
        self._cache = SlotCache(config.num_hidden_layers, self._plan)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters

    @classmethod
    def load(cls, path: Path, device: torch.device, dtype: torch.dtype, max_sequence: int) -> TransformersDecoder:
        """Raises UsageError for a model whose memory of the past is not plain keys and values."""
        with torch.inference_mode(False):  # a trainer can keep its parameters there
            model = load_causal_lm(path, str(dtype).removeprefix("torch."))
        reason = unsupported(model.config, max_sequence)
        if reason:
            raise UsageError(f"engine torch cannot run the model in {path}: {reason}")
        decoder = cls(model, device, path)
        reason = decoder.difference()
        if reason:
            raise UsageError(f"engine torch cannot run the model in {path}: {reason}")
        return decoder

    def difference(self) -> str:
        """How the logits with slots differ from the model's own forward pass (a family that ignores the mask or the
        positions shows here); empty when they do not."""
        tokens = torch.arange(6, device=self._device) % self.vocabulary
        self.reserve(2, 16)
        try:
            found = self._logits_in_slots(tokens)
            own = self._model(input_ids=tokens[None], use_cache=False).logits[0, 2:].float()
        except (TypeError, ValueError, RuntimeError) as error:  # a forward pass that does not take these arguments
            return f"{type(self._model).__name__} does not take masks and positions ({error})"
        finally:
            self.free()
        apart = float((found - own).abs().max() / own.std())
        return "" if apart < TOLERANCE[self._dtype] else (
            f"with keys and values in slots, the logits of {type(self._model).__name__} differ by {apart:.1e}")

    def _logits_in_slots(self, tokens: Tensor) -> Tensor:
        """Logits after tokens 2 to 5: three of six are read (padded, beside a longer prompt, in slot 1), the rest
        follow one by one."""
        lengths, slots = torch.tensor([3, 4], device=self._device), torch.tensor([1, 0], device=self._device)
        found = [self.prefill(tokens[:4].repeat(2, 1), lengths, slots)[0]]
        for position in range(3, len(tokens)):
            places = torch.tensor([position + 1, position], device=self._device)
            found.append(self.decode(tokens[position].repeat(2), places, 16)[1])
        return torch.stack(found).float()

    def reserve(self, slots: int, length: int) -> None:
        self._plan.slots, self._plan.length = slots, length
        self._cache.grow()

    def free(self) -> int:
        return self._cache.free()

    def move(self, memory: Memory) -> int:
        self._memory = memory
        return move(distinct_tensors(self._model).values(), memory)

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        self._cache.copy(sources, targets, length)

    def stage(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Place]:
        staged = self._room()
        fill(staged, tensors)
        self._memory.settle()
        return staged

    def hold(self, tensors: Iterable[tuple[str, Tensor]]) -> tuple[dict[str, Place], int]:
        given = list(tensors)
        held = self._room()
        for name, tensor in given:
            if name in held and (tuple(tensor.shape), tensor.dtype) == (held[name].shape, held[name].view.dtype):
                held[name] = Place(held[name].shape, tensor)
        there = overwrite(held, given)
        self._memory.settle()
        return held, there

    @torch.inference_mode(False)
    def _room(self) -> dict[str, Place]:
        """Places for a second set of weights, where a trainer can keep its parameters too."""
        return {name: Place(place.shape, self._memory.empty(place.shape, place.view.dtype))
                for name, place in self.places().items()}

    def adopt(self, staged: dict[str, Place]) -> None:
        for name, tensor in distinct_tensors(self._model).items():
            tensor.data = staged[name].view

    def places(self) -> Mapping[str, Place]:
        return {name: Place(tuple(tensor.shape), tensor.detach()) for name, tensor in distinct_tensors(self._model).items()}

    def built_weights(self) -> Iterator[tuple[str, Tensor]]:
        model = load_causal_lm(self._source, str(self._dtype).removeprefix("torch."))
        return ((name, tensor.detach()) for name, tensor in distinct_tensors(model).items())

    def prefill(self, tokens: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
        count, width = tokens.shape
        self._plan.read(slots)
        positions = torch.arange(width, device=self._device)
        last, which = torch.unique(lengths - 1, return_inverse=True)
        logits = self._logits(tokens, positions.expand(count, -1), positions <= positions[:, None], last)
        return logits[torch.arange(count, device=self._device), which]

    def decode(self, tokens: Tensor, positions: Tensor, span: int) -> Tensor:
        self._plan.extend(positions, span)
        seen = torch.arange(span, device=self._device) <= positions[:, None]
        return self._logits(tokens[:, None], positions[:, None], seen[:, None, None], None)[:, 0]

    def _logits(self, tokens: Tensor, positions: Tensor, seen: Tensor, keep: Tensor | None) -> Tensor:
        """Logits [B, len(keep) or S, V]. `seen`: bool, can be expanded to [B, 1, S, keys]."""
        mask = torch.zeros(seen.shape, dtype=self._dtype, device=self._device).masked_fill_(~seen, -torch.inf)
        mask = mask.expand(len(tokens), 1, *mask.shape[-2:])
        logits = run(self._model, tokens, positions, mask, self._cache, keep if self._keeps else None)
        return logits if keep is None or self._keeps else logits[:, keep]


def distinct_tensors(model: Any) -> dict[str, Tensor]:
    """Parameters and buffers of a model by name; of tied ones the first."""
    distinct: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        distinct.setdefault(id(tensor), (name, tensor))
    return dict(distinct.values())

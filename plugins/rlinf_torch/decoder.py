"""What the engine needs of a model: logits for new tokens, with keys and values kept in slots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from rlinf_torch.architecture import read_architecture
from rlinf_torch.offloading import Memory
from rlinf_torch.places import Place


class Decoder(Protocol):
    """A model on its device. Token and position tensors are int64 and on that device."""

    vocabulary: int
    longest: int
    """Positions that the model was made for."""

    def reserve(self, slots: int, length: int) -> None:
        """Make room for that many slots of that many positions."""
        ...

    def prefill(self, tokens: Tensor, lengths: Tensor, slots: Tensor) -> Tensor:
        """Read prompts into slots: `tokens` [B, S] padded at the end, `lengths` [B], `slots` [B]. Logits of the next
        tokens, [B, V]."""
        ...

    def decode(self, tokens: Tensor, positions: Tensor, span: int) -> Tensor:
        """One more token for the slots 0 .. n-1: `tokens` [n] at `positions` [n], all below `span`. Logits of the next
        tokens, [n, V]."""
        ...

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first `length` positions of slots to others; no source is a target."""
        ...

    def stage(self, tensors: Iterable[tuple[str, Tensor]]) -> Any:
        """A second set of weights, complete, for `adopt`. Raises ValueError naming what does not fit."""
        ...

    def hold(self, tensors: Iterable[tuple[str, Tensor]]) -> tuple[Any, int]:
        """As `stage`, but tensors in memory that lasts are used where they are if the decoder can; their bytes."""
        ...

    def adopt(self, staged: Any) -> None:
        """Use the staged weights from now on."""
        ...

    def places(self) -> Mapping[str, Place]:
        """Where each weight lies in the decoder's own layout, by Hugging Face name; tied ones once."""
        ...

    def built_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Name and value of every weight that the decoder was built with, read again from where they came from."""
        ...

    def free(self) -> int:
        """Give the memory of keys and values back; its bytes."""
        ...

    def move(self, memory: Memory) -> int:
        """Have the weights there from now on, and what is staged later; their bytes."""
        ...


def open_decoder(model: Path, device: torch.device, dtype: torch.dtype, max_sequence: int) -> Decoder:
    """The decoder for a model directory: the own one for families that it covers, else around `transformers`."""
    architecture = read_architecture(json.loads((model / "config.json").read_text(encoding="utf-8")))
    if architecture is not None:
        from rlinf_torch.decoder_fused import FusedDecoder

        return FusedDecoder.load(model, architecture, device, dtype, max_sequence)
    from rlinf_torch.decoder_transformers import TransformersDecoder

    return TransformersDecoder.load(model, device, dtype, max_sequence)

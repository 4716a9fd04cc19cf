"""Which weights an engine holds: those that it was built with, others, or the first with an adapter merged into them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rlinf_cli.api import Adapter, adapted
from rlinf_torch.decoder import Decoder
from rlinf_torch.offloading import Memory
from rlinf_torch.places import Place, fill, named, overwrite


class HeldWeights:
    """New weights are staged beside the old ones, complete and checked, and adopted between two decode steps.

    An adapter is always merged into the weights as they were built, kept for those that it changes: nothing adds up
    over the updates.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._as_built = True
        """Whether the decoder's weights, an adapter apart, are those that it was built with."""
        self._is_lent = False
        """Whether some of the memory is somebody else's, to be read only."""
        self._before: dict[str, Tensor] = {}
        """The weights that an adapter has changed, as built."""
        self._factors: Mapping[str, Place] = {}

    def stage(self, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None) -> Callable[[], None]:
        """What adopts the new weights. Raises ValueError naming what does not fit."""
        return self._stage_whole(tensors) if adapter is None else self._stage_adapter(tensors, adapter)

    def hold(self, tensors: Iterable[tuple[str, Tensor]]) -> tuple[Callable[[], None], int]:
        """As `stage`, for weights in memory that lasts until others are adopted: used there as far as possible; the bytes
        of those."""
        staged, there = self._decoder.hold(tensors)
        return self._adoption(staged, is_lent=True), there

    def in_place(self) -> Mapping[str, Tensor]:
        """The memory of those weights that lie as Hugging Face has them, if all of it is the decoder's own."""
        return {} if self._is_lent else {name: place.view for name, place in self._decoder.places().items() if place.is_plain()}

    def overwrite(self, tensors: Iterable[tuple[str, Tensor]]) -> int:
        """Write new weights over the old ones, but for those that are in their memory already; the bytes of these. Raises
        ValueError naming what does not fit, with all as it was."""
        there = overwrite(self._decoder.places(), tensors)
        self._as_built, self._before, self._factors = False, {}, {}
        return there

    def move(self, memory: Memory) -> int:
        """Have everything there from now on; its bytes."""
        before, moved = self._before, self._decoder.move(memory)
        self._before = {name: memory.empty(tensor.shape, tensor.dtype).copy_(tensor) for name, tensor in before.items()}
        self._factors = {name: Place(place.shape, memory.empty(place.shape, place.view.dtype).copy_(place.view))
                         for name, place in self._factors.items()}
        memory.settle()
        factors = sum(place.view.nbytes for place in self._factors.values())
        return moved + factors + sum(tensor.nbytes for tensor in before.values())

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """What was set last, as it is held: the factors of an adapter, or all weights."""
        return named(self._factors or self._decoder.places())

    def _stage_whole(self, tensors: Iterable[tuple[str, Tensor]]) -> Callable[[], None]:
        return self._adoption(self._decoder.stage(tensors), is_lent=False)

    def _adoption(self, staged: Any, is_lent: bool) -> Callable[[], None]:
        def adopt() -> None:
            self._decoder.adopt(staged)
            self._as_built, self._is_lent, self._before, self._factors = False, is_lent, {}, {}

        return adopt

    def _stage_adapter(self, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter) -> Callable[[], None]:
        factors = room_for(adapter, self._decoder.places())
        fill(factors, tensors)
        built = None if self._as_built else self._decoder.stage(self._decoder.built_weights())

        @torch.inference_mode()
        def adopt() -> None:
            if built is not None:
                self._decoder.adopt(built)
                self._as_built, self._is_lent = True, False
            self._merge(factors, adapter)

        return adopt

    def _merge(self, factors: Mapping[str, Place], adapter: Adapter) -> None:
        places = self._decoder.places()
        for name in self._before.keys() - adapter.targets:
            places[name].write(self._before.pop(name))
        for name in adapter.targets:
            if name not in self._before:
                self._before[name] = places[name].read().clone()
            places[name].write(adapted(self._before[name], factors[f"{name}.lora_A"].view, factors[f"{name}.lora_B"].view,
                                       adapter.scale))
        self._factors = factors


def room_for(adapter: Adapter, places: Mapping[str, Place]) -> dict[str, Place]:
    """Places for an adapter's factors, float32, beside the weights. Raises ValueError naming a target that is none."""
    strangers = [name for name in adapter.targets if name not in places or len(places[name].shape) != 2]
    if strangers:
        raise ValueError(f"the adapter changes {strangers[0]}, which is no matrix of the model")
    room = {}
    for name in adapter.targets:
        (outputs, inputs), device = places[name].shape, places[name].view.device
        for factor, shape in (("lora_A", (adapter.rank, inputs)), ("lora_B", (outputs, adapter.rank))):
            room[f"{name}.{factor}"] = Place(shape, torch.empty(shape, device=device))
    return room

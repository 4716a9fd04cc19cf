"""What an engine and a trainer may offer besides, so that there is one copy of the weights where both are in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class SharingEngine(Protocol):
    """An engine that lets a trainer keep weights in the engine's own memory."""

    def weights_in_place(self) -> Mapping[str, Tensor]:
        """The memory of those weights that lie there as Hugging Face has them, by their names there. It stays the same until
        `update_weights` or `release_memory` is called."""
        ...

    def update_in_place(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> int:
        """As `update_weights`, for tensors of which those that are in the engine's memory already are not copied; the bytes
        of these. What is copied is written over the old weights: no request may be running."""
        ...


@runtime_checkable
class SharingTrainer(Protocol):
    """A trainer that can keep its weights in memory that somebody else has reserved."""

    def keep_weights_in(self, room: Mapping[str, Tensor]) -> int:
        """Move weights into the tensors of their name, where shape, type and device agree, and keep and train them there
        from now on; `offload` leaves these where they are. The bytes of all that are there now."""
        ...

"""An actor and a rollout in one process: the weights are handed over in memory, in one copy of them where that can be."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.engine import TakesWeights
from rlinf_cli.contracts.sharing import SharingEngine, SharingTrainer
from rlinf_cli.errors import RunError
from rlinf_cli.flow.weights_layout import in_type
from rlinf_cli.models.checksum import weights_checksum
from rlinf_cli.workers.publishing import Published, travelling_adapter

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)


class Share(Protocol):
    """An engine in this process that others use too: an `EngineShare`."""

    @property
    def engine(self) -> TakesWeights: ...

    def updating(self) -> AbstractContextManager[None]: ...


_shares: dict[str, Share] = {}
"""Role -> the engine that it has in this process."""


def offer_engine(role: str, share: Share) -> None:
    """Let the other roles in this process find an engine."""
    _shares[role] = share


def engine_here(role: str) -> Share | None:
    """The engine of a role, if it is in this process."""
    return _shares.get(role)


class Handover:
    """Brings the weights of one rank's trainer to the engine in its process.

    Both have one copy of them where both can, the types agree, no adapter is in between, and nothing is generated while
    training changes it (`rollout.staleness=0`). Otherwise the engine gets a copy.
    """

    def __init__(self, config: RunConfig, trainer: Published, share: Share) -> None:
        self._trainer, self._share, self._engine = trainer, share, share.engine
        self._adapter = travelling_adapter(config, trainer)
        self._dtype = getattr(config.settings("engine"), "dtype", "")
        self._may_share = trainer.adapter() is None and config.rollout.staleness == 0
        self._recomputes = config.rollout.in_flight == "recompute"
        self._last: str | None = None

    def publish(self, version: int, changed: bool) -> None:
        """Raises RunError when the engine then holds other weights, or an optimiser step has left them as they were."""
        with self._share.updating():
            shared = self._room()
            trained = list(self._trainer.named_weights() if self._adapter is None else self._trainer.adapter_weights())
            before = weights_checksum(trained)
            if changed and before == self._last:
                raise RunError(f"the optimiser stepped to version {version}, but the weights did not change")
            tensors = [(name, tensor if self._adapter else in_type(tensor, self._dtype)) for name, tensor in trained]
            self._update(version, tensors, shared)
        if self._last is None:
            _say(shared, tensors)
        self._last = before

    def _room(self) -> int:
        """Let the trainer keep its weights in the engine's memory; the bytes of those that are there."""
        trainer, engine = self._trainer, self._engine
        if self._may_share and isinstance(trainer, SharingTrainer) and isinstance(engine, SharingEngine):
            return trainer.keep_weights_in(engine.weights_in_place())
        return 0

    def _update(self, version: int, tensors: Sequence[tuple[str, Tensor]], shared: int) -> None:
        if shared and isinstance(self._engine, SharingEngine):
            self._engine.update_in_place(version, tensors)
        else:
            self._engine.update_weights(version, tensors, self._adapter, self._recomputes)
        sent, held = weights_checksum(tensors), self._engine.weights_checksum()
        if held != sent:
            raise RunError(f"the engine in the trainer's process holds other weights than it was given for version {version} "
                           f"(checksum {held} instead of {sent})")


def _say(shared: int, tensors: Sequence[tuple[str, Tensor]]) -> None:
    size = sum(tensor.nbytes for _, tensor in tensors)
    log.info("trainer and engine have one copy of %.1f MB of %.1f MB of weights; the rest is copied within the process",
             shared / 1e6, size / 1e6)

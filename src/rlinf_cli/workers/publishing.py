"""What of a trainer's policy travels to the engines: all weights, or its adapter where they can take that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.flow.client import client
from rlinf_cli.flow.weights import Publisher
from rlinf_cli.flow.weights_delivery import deliver
from rlinf_cli.models.merge import base_checksum

if TYPE_CHECKING:
    from torch import Tensor

    from rlinf_cli.flow.group import Group, Ranks


class Published(Protocol):
    """What is published: see `rlinf_cli.contracts.trainer.Trainer`."""

    def named_weights(self) -> Iterator[tuple[str, Tensor]]: ...

    def adapter(self) -> Adapter | None: ...

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]: ...


class PolicyPublisher:
    """Publishes the policy of a trainer, which was built from the directory `model` if it has an adapter. One a run: on rank
    0."""

    def __init__(self, config: RunConfig, trainer: Published, model: Path | None) -> None:
        self._trainer, self._delta = trainer, config.cluster.weights_delta
        self._timeout = config.cluster.call_timeout_s
        here = client()
        self._node = here.node
        # an engine with a key `dtype` holds its weights so
        dtype = getattr(config.settings("engine"), "dtype", "")
        self._publisher = Publisher(Path(here.address.directory_on(here.node)), here.node, dtype)
        self._adapter = travelling_adapter(config, trainer)
        self._base = base_checksum(model) if self._adapter is not None and model is not None else ""

    def publish(self, version: int, changed: bool, rollout: Group) -> None:
        """Bring the current weights to all engines of a group that live and check that they hold them; see
        `Publisher.publish`."""
        named = self._trainer.named_weights() if self._adapter is None else self._trainer.adapter_weights()
        delta = self._delta and any(seat.node != self._node for seat in rollout.seats)
        self._publisher.publish(version, named, changed, lambda manifest: deliver(rollout, manifest, self._timeout),
                                self._adapter, self._base, delta)

    def resend(self, targets: Group | Ranks) -> int:
        """Bring what was published last to further engines; see `Publisher.resend`."""
        return self._publisher.resend(lambda manifest: deliver(targets, manifest, self._timeout))

    def close(self) -> None:
        self._publisher.close()


def travelling_adapter(config: RunConfig, trainer: Published) -> Adapter | None:
    """The trainer's adapter, if there is one and the engines of the run can be given it; else all weights travel."""
    adapter = trainer.adapter()
    if adapter is None:
        return None
    engine = config.extension("engine")
    assert engine is not None
    return adapter if engine.load().takes_adapters else None

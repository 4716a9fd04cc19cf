"""What workers have in common that train a policy: its weights go to the rollout, its state to checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.worker import Worker, control, on_device
from rlinf_cli.workers.algorithm import save_state
from rlinf_cli.workers.publishing import PolicyPublisher, Published
from rlinf_cli.workers.sharing import Handover, engine_here

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group


class Learning(Protocol):
    """A `Learner` or a `PolicyLearner`."""

    version: int
    changed: bool


class Trained(Published, Protocol):
    """A `Trainer` or a `PolicyTrainer`."""

    def onload(self) -> int: ...

    def offload(self) -> int: ...

    def save(self, directory: Path) -> None: ...


class TrainedPolicy(Worker):
    """Base of the actors. `_hold` is called by their constructors."""

    def _hold(self, config: RunConfig, algorithm: Algorithm, trainer: Trained, learner: Learning,
              model: Path | None = None) -> None:
        """`model`: the directory that the trainer's weights came from, where an adapter of them may be what is trained."""
        self._config, self._algorithm = config, algorithm
        self._trained, self._learning = trainer, learner
        self._publisher = PolicyPublisher(config, trainer, model) if self.rank == 0 else None
        self._handover: Handover | None = None

    @on_device
    def publish_weights(self, rollout: Group) -> None:
        """Bring the current weights to all engines of a group and check that they hold them."""
        share, learning = engine_here(rollout.role), self._learning
        if share is not None:
            self._handover = self._handover or Handover(self._config, self._trained, share)
            with spent("sync"):
                self._handover.publish(learning.version, learning.changed)
        elif self._publisher is not None:
            with spent("sync"):
                self._publisher.publish(learning.version, learning.changed, rollout)
        learning.changed = False

    @control
    def send_weights(self, targets: Group) -> int:
        """Bring the weights that were published last to engines that were started since; their version on rank 0, -1 before
        any were, and on other ranks."""
        if self._publisher is None:
            return -1
        with spent("sync"):
            return self._publisher.resend(targets)

    def trained_steps(self) -> int:
        """Steps trained so far, those before a resume included."""
        return self._learning.version

    def save(self, directory: str) -> None:
        """Write model and optimiser state into an empty directory."""
        self._trained.save(Path(directory))
        if self.rank == 0:
            save_state(self._algorithm, Path(directory))

    def onload(self) -> int:
        return self._trained.onload()

    def offload(self) -> int:
        return self._trained.offload()

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

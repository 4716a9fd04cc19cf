"""When a run's checkpoints are written, and by whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.flow.errors import WorkerError
from rlinf_cli.flow.group import Group
from rlinf_cli.plugins.lifecycle import CheckpointWritten
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.lifecycle import Lifecycle
from rlinf_cli.runs.naming import step_name
from rlinf_cli.runs.record import Record


class Saver:
    """Has the roles that are trained, the actor and the critic, write what they have learned.

    Where steps overlap, the actor may train step k + 1 by the time that the driver learns of the end of step k. Then `order`
    puts the writing into their queues right behind the training of step k, and `save` makes a checkpoint of it once the
    step is reported. `saved`: step of the last checkpoint; None before the first.
    """

    def __init__(self, config: RunConfig, checkpoints: Checkpoints, record: Record, lifecycle: Lifecycle,
                 fingerprint: Callable[[], str]) -> None:
        self._every, self._limit = config.checkpoint.every, config.cluster.call_timeout_s
        self._checkpoints, self._record, self._lifecycle, self._fingerprint = checkpoints, record, lifecycle, fingerprint
        self._ordered: set[int] = set()
        self.saved: int | None = None

    def start(self, trained: Sequence[Group], step: int | None) -> None:
        """They go on from the checkpoint of `step`, or from the beginning; what was ordered of others is void."""
        self._trained, self.saved = list(trained), step
        self._ordered.clear()

    def is_due(self, step: int) -> bool:
        return self._every > 0 and step % self._every == 0

    def order(self, step: int) -> None:
        """All that trains the step has been called, and nothing later has."""
        if self.is_due(step):
            path = self._checkpoints.begin(step)
            for group in self._trained:
                group.save(str(path))
            self._ordered.add(step)

    def save(self, step: int) -> None:
        """Checkpoint the trained steps, so many, unless that has been done."""
        if step == (self.saved or 0):
            return
        began, state = time.monotonic(), self._record.state(step, self._fingerprint()).to_json()
        if step in self._ordered:
            self._ordered.remove(step)
            self._checkpoints.commit(step, state)
        else:
            with self._checkpoints.write(step, state) as path:
                for call in [group.save(str(path)) for group in self._trained]:
                    call.wait(self._limit)
        self.saved = step
        self._record.checkpoint(began)
        self._lifecycle.checkpoint(CheckpointWritten(step, self._checkpoints.directory / step_name(step),
                                                     self._checkpoints.best_step() == step))

    def trained(self) -> int:
        """Steps that have been trained, whether or not they are reported; waits for what is under way.

        Raises RunError where one role has trained a step and another has not: there is no such state of the run.
        """
        found: list[int] = [call.wait(self._limit)[0] for call in [group.trained_steps() for group in self._trained]]
        if len(set(found)) > 1:
            told = ", ".join(f"{group.role} {steps}" for group, steps in zip(self._trained, found, strict=True))
            raise RunError(f"the step that was under way is trained in part: steps trained by {told}")
        return found[0]

    def explain(self, error: RlinfError) -> RlinfError:
        """What `order` asked for may have failed at the disk."""
        if isinstance(error, WorkerError) and error.method == "save":
            return self._checkpoints.refused(min(self._ordered, default=self._record.report.number), error) or error
        return error

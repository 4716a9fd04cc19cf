"""The optimiser steps of one rank of an embodied policy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.contracts.policy import Minibatch, PolicyTrainer
from rlinf_cli.workers.learner import guarded, merge, until_enough
from rlinf_cli.workers.transitions import Portion


class PolicyLearner:
    """Trains one rank's portions, a step at a time; as `Learner`. `version` is that of the policy that the trainer holds."""

    def __init__(self, algorithm: Algorithm, trainer: PolicyTrainer, version: int = 0) -> None:
        self._algorithm, self._trainer, self.version = algorithm, trainer, version
        self.changed = False
        """Whether the weights have moved since somebody set this to False."""

    def train(self, portion: Portion) -> dict[str, float]:
        """One step; its metrics. Raises RunError when the numbers are not finite."""
        self._trainer.begin(portion.transitions, portion.counted)
        rows = until_enough(self._steps(portion), self._algorithm)
        self._trainer.end()
        self.version += 1
        self.changed |= any(row["actor/grad_norm"] > 0 and row["actor/lr"] > 0 for row in rows)
        if not rows:
            return {"actor/skipped": 1.0}
        metrics, left_out = merge(rows, not self._algorithm.supervised), 1 - len(rows) / len(portion.minibatches)
        return metrics | ({"actor/stopped_frac": left_out} if left_out else {})

    def _steps(self, portion: Portion) -> Iterator[dict[str, float]]:
        for minibatch in portion.minibatches:
            yield guarded(partial(self._train, minibatch), self.version)

    def _train(self, minibatch: Minibatch) -> dict[str, float]:
        own = self._algorithm
        return self._trainer.train_minibatch(minibatch, own.loss, own.value_loss if own.learns_values else None,
                                             own.needs_entropy, own.value_coef)

"""The optimiser steps of one rank of an embodied policy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.contracts.policy import Minibatch, PolicyTrainer
from rlinf_cli.workers.learner import PolicySteps, guarded, until_enough
from rlinf_cli.workers.transitions import Portion


class PolicyLearner(PolicySteps):
    """Trains one rank's portions, a step at a time; as `Learner`. `version` is that of the policy that the trainer holds."""

    def __init__(self, algorithm: Algorithm, trainer: PolicyTrainer, version: int = 0) -> None:
        super().__init__(version, not algorithm.supervised)
        self._algorithm, self._trainer = algorithm, trainer

    def train(self, portion: Portion) -> dict[str, float]:
        """One step; its metrics. Raises RunError when the numbers are not finite."""
        self._trainer.begin(portion.transitions, portion.counted)
        rows = until_enough(self._steps(portion), self._algorithm)
        self._trainer.end()
        return self._ended(rows, len(portion.minibatches))

    def _steps(self, portion: Portion) -> Iterator[dict[str, float]]:
        for minibatch in portion.minibatches:
            yield guarded(partial(self._train, minibatch), self.version)

    def _train(self, minibatch: Minibatch) -> dict[str, float]:
        own = self._algorithm
        return self._trainer.train_minibatch(minibatch, own.loss, own.value_loss if own.learns_values else None,
                                             own.needs_entropy, own.value_coef)

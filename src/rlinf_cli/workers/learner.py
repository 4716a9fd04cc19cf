"""The optimiser steps of one rank: what an actor does between the samples that it got and the weights that it publishes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.contracts.policy import PolicyTrainer
from rlinf_cli.contracts.trainer import Trainer, TrainItem, ValueItem, ValueTrainer
from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.workers.algorithm import load_state
from rlinf_cli.workers.batch import Parts, is_comparable, recomputes


class PolicySteps:
    """What a learner of a policy tells of it. `comparable`: see `merge`."""

    def __init__(self, version: int, comparable: bool) -> None:
        self.version, self._comparable = version, comparable
        self.changed = False
        """Whether the weights have moved since somebody set this to False."""

    def _ended(self, rows: Sequence[Mapping[str, float]], wanted: int) -> dict[str, float]:
        """Metrics of a step from those of the optimiser steps that were taken, of so many `wanted`."""
        self.version += 1
        self.changed |= any(row["actor/grad_norm"] > 0 and row["actor/lr"] > 0 for row in rows)
        if not rows:
            return {"actor/skipped": 1.0}
        left_out = wanted - len(rows)
        return merge(rows, self._comparable) | ({"actor/stopped_frac": left_out / wanted} if left_out else {})


class Learner(PolicySteps):
    """Trains one rank's parts, a step at a time. `version` is that of the policy that the trainer holds."""

    def __init__(self, config: RunConfig, algorithm: Algorithm, trainer: Trainer, version: int = 0) -> None:
        super().__init__(version, is_comparable(algorithm, config.rollout))
        self._algorithm, self._trainer = algorithm, trainer
        self._temperature = config.rollout.temperature
        self._recomputes = recomputes(algorithm, config.rollout)

    def train(self, part: Parts[TrainItem]) -> dict[str, float]:
        """One step; its metrics. Without an optimiser step the weights stay, and the step counts nevertheless.

        Raises RunError when the numbers are not finite.
        """
        if self._recomputes:
            part = self._with_old_logprobs(part)
        return self._ended(until_enough(map(self._train_step, part), self._algorithm), len(part))

    def accumulate(self, items: Sequence[TrainItem]) -> None:
        """Some items of a step of one optimiser step, weighted with `rl.aggregation.token_shares`."""
        if self._recomputes:
            (items,) = self._with_old_logprobs([list(items)])
        self._trainer.accumulate(items, self._algorithm.loss, self._temperature, self._algorithm.needs_entropy)

    def finish(self, count: int) -> dict[str, float]:
        """End the step that was accumulated, whose shares are to be divided by `count`; as `train`."""
        rows = [guarded(lambda: self._trainer.finish(1 / count), self.version)] if count else []
        return self._ended(rows, len(rows))

    def discard(self) -> None:
        """Give up the step that was accumulated."""
        self._trainer.discard()

    def _with_old_logprobs(self, part: Parts[TrainItem]) -> Parts[TrainItem]:
        """Score this rank's samples under the weights that they are about to change."""
        samples = {item.sample.id: item.sample for items in part for item in items}
        scored = self._trainer.log_probs(list(samples.values()), self._temperature)
        old = dict(zip(samples, scored, strict=True))
        return [[replace(item, old_logprobs=old[item.sample.id]) for item in items] for items in part]

    def _train_step(self, items: Sequence[TrainItem]) -> dict[str, float]:
        return guarded(lambda: self._trainer.train_step(items, self._algorithm.loss, self._temperature,
                                                        self._algorithm.needs_entropy), self.version)


class ValueLearner:
    """As `Learner`, of a critic."""

    def __init__(self, algorithm: Algorithm, trainer: ValueTrainer, version: int = 0) -> None:
        self._algorithm, self._trainer, self.version = algorithm, trainer, version

    def train(self, part: Parts[ValueItem]) -> dict[str, float]:
        """One step; its metrics, none without an optimiser step. Raises RunError when the numbers are not finite."""
        rows = [self._train_step(items) for items in part]
        self.version += 1
        return means(rows) | {"critic/lr": rows[-1]["critic/lr"]} if rows else {}

    def _train_step(self, items: Sequence[ValueItem]) -> dict[str, float]:
        return guarded(lambda: self._trainer.train_values(items, self._algorithm.value_loss), self.version)


def take_up(trainer: Trainer | ValueTrainer | PolicyTrainer, algorithm: Algorithm, checkpoint: Path) -> None:
    """Go on from a checkpoint. Raises UsageError naming what does not fit the configuration."""
    try:
        trainer.load(checkpoint)
        load_state(algorithm, checkpoint)
    except ValueError as error:
        raise UsageError(f"cannot go on from {checkpoint}: {error}") from error


def guarded(step: Callable[[], dict[str, float]], version: int) -> dict[str, float]:
    """What an optimiser step gives. Raises RunError when its numbers are not finite."""
    try:
        return step()
    except FloatingPointError as error:
        raise RunError(f"training stopped in step {version + 1}: {error}") from error


def until_enough(rows: Iterable[dict[str, float]], algorithm: Algorithm) -> list[dict[str, float]]:
    """The optimiser steps' metrics up to the one after which the algorithm wants no more; they are taken as they are read.
    They are of all ranks, so that all ranks stop together."""
    taken: list[dict[str, float]] = []
    for row in rows:
        taken.append(row)
        if algorithm.enough(row):
            break
    return taken


def merge(rows: Sequence[Mapping[str, float]], comparable: bool) -> dict[str, float]:
    """Metrics of a step from those of its optimiser steps: means, but the last learning rate.

    `comparable`: whether the samples' log-probabilities are of the distribution that the trainer computes.
    """
    merged = means(rows)
    merged["actor/lr"] = rows[-1]["actor/lr"]
    for end in ("mean", "max"):
        del merged[f"actor/logp_diff_{end}"]
        if comparable:
            # only the first optimiser step still has the weights that made the samples
            merged[f"rollout/logp_diff/{end}"] = rows[0][f"actor/logp_diff_{end}"]
    return merged


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each metric over the optimiser steps of a step."""
    return {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}

"""The actor role: trains the policy on scored samples and publishes its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm
from rlinf_cli.contracts.trainer import Ranks, Trainer, TrainItem
from rlinf_cli.errors import RunError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.flow.ports import In
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.weights import Publisher, deliver
from rlinf_cli.flow.worker import Worker
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.statistics import step_metrics, trainable
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.workers.batch import Parts, deal

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group

CHUNK = 256
"""Groups taken from the channel at once, where so many wait."""


@dataclass
class TrainResult:
    """What a step leaves behind; empty on ranks other than 0."""

    metrics: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    """A few, to look at."""
    tokens: int = 0
    """Prompt and response tokens of all samples of the step."""
    count: int = 0
    """Samples of the step, trainable or not."""


class ActorWorker(Worker):
    """One data-parallel rank of the policy. Rank 0 gathers a step's samples and deals them out."""

    def __init__(self, config: RunConfig, checkpoint: str | None = None, step: int = 0) -> None:
        self._config = config
        self._version = step
        algorithm, trainer = config.extension("algorithm"), config.extension("trainer")
        assert algorithm is not None
        assert trainer is not None
        self._algorithm: Algorithm = algorithm.load()(config.settings("algorithm"))
        self._trainer: Trainer = trainer.load()(
            config.settings("trainer"), resolve_model(config.model.name, config.seed, plugins()), self.device,
            Ranks(self.rank, self.world, self.init_method),
            config.steps * config.algorithm.epochs * config.algorithm.minibatches)
        if checkpoint is not None:
            self._trainer.load(Path(checkpoint))
        self._parts = Channel(f"{self.role}-parts")
        self._publisher = Publisher(Path(client().address.directory_on(client().node))) if self.rank == 0 else None
        self._changed = False

    def train(self, scored: In[SampleGroup]) -> TrainResult:
        """Train one step on all samples of the channel.

        Raises RunError when no sample has a reward or the numbers are not finite.
        """
        if self.rank > 0:
            self._optimise(self._receive())
            return TrainResult()
        try:
            chunks = scored.chunks(CHUNK, at_least=1)
            samples = sorted((sample for chunk in chunks for group in chunk for sample in group), key=lambda one: one.id)
            metrics = step_metrics(samples, self._version)
            part = self._deal(samples)
        except BaseException:
            self._send([None] * self.world)  # the other ranks wait for their parts
            raise
        rows = self._optimise(part)
        return TrainResult(metrics | merge(rows), samples[: self._config.log.samples],
                           sum(len(sample) for sample in samples), len(samples))

    def publish_weights(self, rollout: Group) -> None:
        """Bring the current weights to all engines of a group and check that they hold them."""
        if self._publisher is not None:
            with spent("sync"):
                self._publisher.publish(self._version, self._trainer.named_weights(), self._changed,
                                        deliver(rollout, self._config.cluster.call_timeout_s))
        self._changed = False

    def trained_steps(self) -> int:
        """Steps trained so far, those before a resume included."""
        return self._version

    def save(self, directory: str) -> None:
        """Write model and optimiser state into an empty directory."""
        self._trainer.save(Path(directory))

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def _deal(self, samples: Sequence[Sample]) -> Parts:
        kept = trainable(samples)
        if not kept:
            raise RunError(nothing_to_train(samples))
        parts = deal(kept, self._algorithm, self._config, self._version, self.world)
        self._send(parts)
        return parts[0]

    def _send(self, parts: Sequence[Parts | None]) -> None:
        for rank in range(1, self.world):
            self._parts.put(parts[rank], key=str(rank))
        self._parts.flush()

    def _receive(self) -> Parts:
        part: Parts | None = self._parts.get(1, key=str(self.rank))[0]
        if part is None:
            raise ChannelBrokenError(f"{self.role}[0] has no samples to deal out")
        return part

    def _optimise(self, part: Parts) -> list[dict[str, float]]:
        rows = [self._train_step(items) for items in part]
        self._version += 1
        self._changed = any(row["actor/grad_norm"] > 0 and row["actor/lr"] > 0 for row in rows)
        return rows

    def _train_step(self, items: Sequence[TrainItem]) -> dict[str, float]:
        try:
            return self._trainer.train_step(items, self._algorithm.loss, self._config.rollout.temperature,
                                            self._algorithm.needs_entropy)
        except FloatingPointError as error:
            raise RunError(f"training stopped in step {self._version + 1}: {error}") from error


def merge(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Metrics of a step from those of its optimiser steps: means, but the last learning rate."""
    merged = {name: sum(row[name] for row in rows) / len(rows) for name in rows[0]}
    merged["actor/lr"] = rows[-1]["actor/lr"]
    # only the first optimiser step still has the weights that made the samples
    for end in ("mean", "max"):
        del merged[f"actor/logp_diff_{end}"]
        merged[f"rollout/logp_diff/{end}"] = rows[0][f"actor/logp_diff_{end}"]
    return merged


def nothing_to_train(samples: Sequence[Sample]) -> str:
    """Why a step has no trainable sample."""
    errors = [sample.error for sample in samples if sample.error]
    if errors:
        return (f"no sample of this step has a reward: {len(errors)} of {len(samples)} failed, "
                f"the first with {errors[0]} (see the reward worker's log)")
    return f"no sample of this step can be trained ({len(samples)} samples came)"

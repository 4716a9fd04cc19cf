"""The actor role: trains the policy on scored samples and publishes its weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Ranks, Trainer
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.flow.ports import In
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.worker import Worker
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.statistics import describe_left_out, left_out
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.batch import Parts, deal
from rlinf_cli.workers.gathering import StepSamples
from rlinf_cli.workers.learner import Learner
from rlinf_cli.workers.publishing import PolicyPublisher
from rlinf_cli.workers.result import TrainResult

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group

log = logging.getLogger(__name__)

CHUNK = 256
"""Groups taken from the channel at once, where so many wait."""


def take_up(trainer: Trainer, checkpoint: Path) -> None:
    """Go on from a checkpoint. Raises UsageError naming what does not fit the configuration."""
    try:
        trainer.load(checkpoint)
    except ValueError as error:
        raise UsageError(f"cannot go on from {checkpoint}: {error}") from error


class ActorWorker(Worker):
    """One data-parallel rank of the policy. Rank 0 gathers a step's samples and deals them out."""

    def __init__(self, config: RunConfig, checkpoint: str | None = None, step: int = 0) -> None:
        self._config = config
        self._algorithm = build_algorithm(config)
        trainer = config.extension("trainer")
        assert trainer is not None
        model = resolve_model(config.model.name, config.seed, plugins())
        torch.manual_seed(config.seed)  # what a trainer draws, such as the beginning of an adapter, is alike on all ranks
        self._trainer: Trainer = trainer.load()(
            config.settings("trainer"), model, self.device, Ranks(self.rank, self.world, self.init_method),
            config.steps * config.algorithm.epochs * config.algorithm.minibatches)
        if checkpoint is not None:
            take_up(self._trainer, Path(checkpoint))
        self._learner = Learner(config, self._algorithm, self._trainer, step)
        self._parts = Channel(f"{self.role}-parts")
        self._publisher = PolicyPublisher(config, self._trainer, model) if self.rank == 0 else None
        self._samples = StepSamples(self._algorithm, config.rollout)
        self._told: set[str] = set()

    def collect(self, scored: In[SampleGroup]) -> bool:
        """Take a round of samples for the next `train`; whether so many take part by now that it needs no other. Only
        rank 0 knows, the others say yes."""
        if self.rank > 0:
            return True
        self._gather(scored)
        return self._samples.is_enough()

    def train(self, scored: In[SampleGroup]) -> TrainResult:
        """Train one step on the samples of the channel and those collected before.

        Where none takes part, nothing is trained, but the step counts. Raises RunError when no sample has a reward or
        the numbers are not finite.
        """
        if self.rank > 0:
            self._learner.train(self._receive())
            return TrainResult()
        version = self._learner.version
        try:
            self._gather(scored)
            samples, self._samples = self._samples, StepSamples(self._algorithm, self._config.rollout)
            dealt = deal(samples.chosen(), self._algorithm, self._config, version, self.world)
            metrics = {**samples.metrics(version), **dealt.metrics}
            self._send(dealt.parts)
        except BaseException:
            self._send([None] * self.world)  # the other ranks wait for their parts
            raise
        metrics |= self._learner.train(dealt.parts[0])
        return self._result(samples.all, metrics)

    def publish_weights(self, rollout: Group) -> None:
        """Bring the current weights to all engines of a group and check that they hold them."""
        if self._publisher is not None:
            with spent("sync"):
                self._publisher.publish(self._learner.version, self._learner.changed, rollout)
        self._learner.changed = False

    def trained_steps(self) -> int:
        """Steps trained so far, those before a resume included."""
        return self._learner.version

    def save(self, directory: str) -> None:
        """Write model and optimiser state into an empty directory."""
        self._trainer.save(Path(directory))

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def _gather(self, scored: In[SampleGroup]) -> None:
        self._samples.add(group for chunk in scored.chunks(CHUNK, at_least=1) for group in chunk)

    def _send(self, parts: Sequence[Parts | None]) -> None:
        for rank in range(1, self.world):
            self._parts.put(parts[rank], key=str(rank))
        self._parts.flush()

    def _receive(self) -> Parts:
        part: Parts | None = self._parts.get(1, key=str(self.rank))[0]
        if part is None:
            raise ChannelBrokenError(f"{self.role}[0] has no samples to deal out")
        return part

    def _result(self, samples: list[Sample], metrics: dict[str, float]) -> TrainResult:
        reasons = {} if self._algorithm.supervised else describe_left_out(left_out(samples), self._told)
        self._told.update(reasons)
        for sentence in reasons.values():
            log.warning("left out: %s", sentence)
        return TrainResult(metrics, samples[: self._config.log.samples], sum(map(len, samples)), len(samples),
                           list(reasons.values()))

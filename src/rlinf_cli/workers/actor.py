"""The actor role: trains the policy on scored samples and publishes its weights."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Ranks, Trainer
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.errors import ChannelBrokenError
from rlinf_cli.flow.ports import In
from rlinf_cli.flow.timeline import spent
from rlinf_cli.flow.worker import Worker, control, on_device
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.statistics import describe_left_out, left_out
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.state.granularity import Granularity
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.batch import deal
from rlinf_cli.workers.chunks import chunks
from rlinf_cli.workers.gathering import StepSamples
from rlinf_cli.workers.learner import Learner
from rlinf_cli.workers.publishing import PolicyPublisher
from rlinf_cli.workers.result import TrainResult
from rlinf_cli.workers.sharing import Handover, engine_here
from rlinf_cli.workers.streaming import Finish, StreamedStep, bounds, can_stream

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

    def __init__(self, config: RunConfig, checkpoint: str | None = None, step: int = 0, stream: bool = False,
                 granularity: tuple[int, int] | None = None) -> None:
        """`stream`: samples are made on other devices, so that what has come can be trained while others are made, in
        chunks of so many prompts (`granularity`; None: as many as are found to be good)."""
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
        # of this launch: what was dealt to ranks that have died is for nobody
        self._parts = Channel(f"{self.role}-parts-{self.init_method}")
        self._publisher = PolicyPublisher(config, self._trainer, model) if self.rank == 0 else None
        self._handover: Handover | None = None
        self._samples = StepSamples(self._algorithm, config.rollout)
        self._streams = stream and can_stream(self._algorithm, config)
        self._bounds = granularity
        self._granularity = Granularity(*(granularity or (1, config.rollout.prompts)))
        self._told: set[str] = set()

    def collect(self, scored: In[SampleGroup]) -> bool:
        """Take a round of samples for the next `train`; whether so many take part by now that it needs no other. Only
        rank 0 knows, the others say yes."""
        if self.rank > 0:
            return True
        self._gather(scored)
        return self._samples.is_enough()

    @on_device
    def train(self, scored: In[SampleGroup]) -> TrainResult:
        """Train one step on the samples of the channel and those collected before.

        Where none takes part, nothing is trained, but the step counts. Raises RunError when no sample has a reward or
        the numbers are not finite.
        """
        if self._streams:
            return self._lead_stream(scored) if self.rank == 0 else self._follow_stream()
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

    @on_device
    def publish_weights(self, rollout: Group) -> None:
        """Bring the current weights to all engines of a group and check that they hold them."""
        share = engine_here(rollout.role)
        if share is not None:
            self._handover = self._handover or Handover(self._config, self._trainer, share)
            with spent("sync"):
                self._handover.publish(self._learner.version, self._learner.changed)
        elif self._publisher is not None:
            with spent("sync"):
                self._publisher.publish(self._learner.version, self._learner.changed, rollout)
        self._learner.changed = False

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
        return self._learner.version

    def save(self, directory: str) -> None:
        """Write model and optimiser state into an empty directory."""
        self._trainer.save(Path(directory))

    def onload(self) -> int:
        return self._trainer.onload()

    def offload(self) -> int:
        return self._trainer.offload()

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def _gather(self, scored: In[SampleGroup]) -> None:
        self._samples.add(group for chunk in scored.chunks(CHUNK, at_least=1) for group in chunk)

    def _lead_stream(self, scored: In[SampleGroup]) -> TrainResult:
        """`train` of samples as they come. What goes wrong before the last is there leaves the weights alone."""
        step = StreamedStep(self._algorithm, self._config, self.world)
        try:
            for groups in chunks(scored, self._granularity):
                parts = step.deal(groups)
                self._send(parts)
                self._learner.accumulate(parts[0])
            samples, metrics = step.result(self._learner.version)
            self._send([Finish(step.count)] * self.world)
        except BaseException:
            self._learner.discard()
            self._send([None] * self.world)
            raise
        metrics |= self._learner.finish(step.count)
        if self._bounds is None:
            budget = self.world * getattr(self._config.settings("trainer"), "micro_batch_tokens", 0)
            self._granularity.handle(bounds(samples, self._config.rollout.prompts, budget))
        return self._result(samples, metrics)

    def _follow_stream(self) -> TrainResult:
        try:
            while not isinstance(part := self._receive(), Finish):
                self._learner.accumulate(part)
        except BaseException:
            self._learner.discard()
            raise
        self._learner.finish(part.count)
        return TrainResult()

    def _send(self, parts: Sequence[Any]) -> None:
        """To each rank its own; None: there is nothing, the step has failed."""
        for rank in range(1, self.world):
            self._parts.put(parts[rank], key=str(rank))
        self._parts.flush()

    def _receive(self) -> Any:
        part = self._parts.get(1, key=str(self.rank))[0]
        if part is None:
            raise ChannelBrokenError(f"{self.role}[0] has no samples to deal out")
        return part

    def _result(self, samples: list[Sample], metrics: dict[str, float]) -> TrainResult:
        reasons = {} if self._algorithm.supervised else describe_left_out(left_out(samples), self._told)
        self._told.update(reasons)
        for sentence in reasons.values():
            log.warning("left out: %s", sentence)
        return TrainResult(metrics, samples[: self._config.log.samples], sum(map(len, samples)), len(samples),
                           list(reasons.values()), lengths=[len(sample.response_ids) for sample in samples])

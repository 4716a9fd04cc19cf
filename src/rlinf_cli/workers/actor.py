"""The actor role: trains the policy on scored samples and publishes its weights."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Ranks, Trainer
from rlinf_cli.flow.ports import In
from rlinf_cli.flow.worker import on_device
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.statistics import describe_left_out, left_out
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.state.granularity import Granularity
from rlinf_cli.workers.algorithm import build_algorithm
from rlinf_cli.workers.batch import deal
from rlinf_cli.workers.chunks import chunks
from rlinf_cli.workers.dealing import Dealing
from rlinf_cli.workers.learner import Learner, take_up
from rlinf_cli.workers.result import TrainResult
from rlinf_cli.workers.streaming import Finish, StreamedStep, bounds, can_stream
from rlinf_cli.workers.trained import TrainedPolicy

log = logging.getLogger(__name__)


class ActorWorker(TrainedPolicy):
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
            take_up(self._trainer, self._algorithm, Path(checkpoint))
        self._learner = Learner(config, self._algorithm, self._trainer, step)
        self._dealing = Dealing(self, config, self._algorithm, self._learner, deal)
        self._hold(config, self._algorithm, self._trainer, self._learner, model)
        self._streams = stream and can_stream(self._algorithm, config)
        self._bounds = granularity
        self._granularity = Granularity(*(granularity or (1, config.rollout.prompts)))
        self._told: set[str] = set()

    def collect(self, scored: In[SampleGroup]) -> bool:
        """See `Dealing.collect`."""
        return self._dealing.collect(scored)

    @on_device
    def train(self, scored: In[SampleGroup]) -> TrainResult:
        """Train one step on the samples of the channel and those collected before.

        Where none takes part, nothing is trained, but the step counts. Raises RunError when no sample has a reward or
        the numbers are not finite.
        """
        if self._streams:
            return self._lead_stream(scored) if self.rank == 0 else self._follow_stream()
        version, trained = self._learner.version, self._dealing.train(scored)
        if trained is None:
            return TrainResult()
        samples, metrics = trained
        return self._result(samples.all, {**samples.metrics(version), **metrics})

    def _lead_stream(self, scored: In[SampleGroup]) -> TrainResult:
        """`train` of samples as they come. What goes wrong before the last is there leaves the weights alone."""
        step = StreamedStep(self._algorithm, self._config, self.world)
        try:
            for groups in chunks(scored, self._granularity):
                parts = step.deal(groups)
                self._dealing.send(parts)
                self._learner.accumulate(parts[0])
            samples, metrics = step.result(self._learner.version)
            self._dealing.send([Finish(step.count)] * self.world)
        except BaseException:
            self._learner.discard()
            self._dealing.give_up()
            raise
        metrics |= self._learner.finish(step.count)
        if self._bounds is None:
            budget = self.world * getattr(self._config.settings("trainer"), "micro_batch_tokens", 0)
            self._granularity.handle(bounds(samples, self._config.rollout.prompts, budget))
        return self._result(samples, metrics)

    def _follow_stream(self) -> TrainResult:
        try:
            while not isinstance(part := self._dealing.receive(), Finish):
                self._learner.accumulate(part)
        except BaseException:
            self._learner.discard()
            raise
        self._learner.finish(part.count)
        return TrainResult()

    def _result(self, samples: list[Sample], metrics: dict[str, float]) -> TrainResult:
        reasons = {} if self._algorithm.supervised else describe_left_out(left_out(samples), self._told)
        self._told.update(reasons)
        for sentence in reasons.values():
            log.warning("left out: %s", sentence)
        return TrainResult(metrics, samples[: self._config.log.samples], sum(map(len, samples)), len(samples),
                           list(reasons.values()), lengths=[len(sample.response_ids) for sample in samples])

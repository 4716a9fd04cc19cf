"""The reference role: scores samples under the model that the run began with."""

from __future__ import annotations

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Ranks, Trainer
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, on_device
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.state.granularity import Granularity
from rlinf_cli.workers.chunks import fill_in
from rlinf_cli.workers.result import TrainResult

CHUNK = 16
"""Groups taken at once, where so many wait: enough to fill micro-batches, few enough to share with other ranks."""


class ReferenceWorker(Worker):
    """A trainer that never trains. Every rank holds the whole model and takes groups as they come."""

    def __init__(self, config: RunConfig, granularity: tuple[int, int] | None = None) -> None:
        """`granularity`: fewest and most groups that are scored at once."""
        self._granularity = Granularity(*(granularity or (1, CHUNK)), sharers=self.world)
        trainer = config.extension("trainer")
        assert trainer is not None
        self._temperature, self._one_by_one = config.rollout.temperature, config.deterministic
        self._trainer: Trainer = trainer.load()(
            config.settings("trainer"), resolve_model(config.model.name, config.seed, plugins()), self.device, Ranks(), 0)

    @on_device
    def score(self, samples: In[SampleGroup], scored: Out[SampleGroup]) -> TrainResult:
        """Fill in `Sample.reference_logprobs`, at the temperature that the samples were drawn with."""
        return TrainResult(chunks=fill_in(samples, self._granularity, self._one_by_one, self._score, scored))

    def _score(self, samples: list[Sample]) -> None:
        for sample, logprobs in zip(samples, self._trainer.log_probs(samples, self._temperature), strict=True):
            sample.reference_logprobs = logprobs

    def onload(self) -> int:
        return self._trainer.onload()

    def offload(self) -> int:
        return self._trainer.offload()

"""The reference role: scores samples under the model that the run began with."""

from __future__ import annotations

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Ranks, Trainer
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import SampleGroup

CHUNK = 16
"""Groups taken at once, where so many wait: enough to fill micro-batches, few enough to share with other ranks."""


class ReferenceWorker(Worker):
    """A trainer that never trains. Every rank holds the whole model and takes groups as they come."""

    def __init__(self, config: RunConfig) -> None:
        trainer = config.extension("trainer")
        assert trainer is not None
        self._temperature = config.rollout.temperature
        self._trainer: Trainer = trainer.load()(
            config.settings("trainer"), resolve_model(config.model.name, config.seed, plugins()), self.device, Ranks(), 0)

    def score(self, samples: In[SampleGroup], scored: Out[SampleGroup]) -> None:
        """Fill in `Sample.reference_logprobs`, at the temperature that the samples were drawn with."""
        for groups in samples.chunks(CHUNK, at_least=1):
            chunk = [sample for group in groups for sample in group]
            for sample, logprobs in zip(chunk, self._trainer.log_probs(chunk, self._temperature), strict=True):
                sample.reference_logprobs = logprobs
            scored.put_many(groups, [sum(map(len, group)) for group in groups])

"""The critic role: tells what reward to expect at each token, and learns it."""

from __future__ import annotations

from pathlib import Path

import torch

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.trainer import Ranks, TrainsCritics, ValueTrainer
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker, on_device
from rlinf_cli.models.resolve import resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.state.granularity import Granularity
from rlinf_cli.workers.algorithm import build_algorithm, save_state
from rlinf_cli.workers.batch import deal_values
from rlinf_cli.workers.chunks import fill_in
from rlinf_cli.workers.dealing import Dealing
from rlinf_cli.workers.learner import ValueLearner, take_up
from rlinf_cli.workers.reference import CHUNK
from rlinf_cli.workers.result import TrainResult

DIRECTORY = "critic"
"""Where its state lies in a checkpoint, beside the policy's."""


class CriticWorker(Worker):
    """One data-parallel rank of the critic. Every rank holds the whole model: it values groups as they come, and is dealt its
    part of a step by rank 0."""

    def __init__(self, config: RunConfig, checkpoint: str | None = None, step: int = 0,
                 granularity: tuple[int, int] | None = None) -> None:
        """`granularity`: fewest and most groups that are valued at once."""
        self._granularity = Granularity(*(granularity or (1, CHUNK)), sharers=self.world)
        self._one_by_one = config.deterministic
        self._algorithm = build_algorithm(config)
        self._trainer = build_critic(config, self.device, Ranks(self.rank, self.world, self.init_method))
        if checkpoint is not None:
            take_up(self._trainer, self._algorithm, Path(checkpoint) / DIRECTORY)
        self._learner = ValueLearner(self._algorithm, self._trainer, step)
        self._dealing = Dealing(self, config, self._algorithm, self._learner, deal_values)

    @on_device
    def estimate(self, samples: In[SampleGroup], valued: Out[SampleGroup], kept: Out[SampleGroup]) -> TrainResult:
        """Fill in `Sample.values`. The groups go on to whoever works with them, and stay for `train`."""
        return TrainResult(chunks=fill_in(samples, self._granularity, self._one_by_one, self._estimate, kept, valued))

    def collect(self, kept: In[SampleGroup]) -> bool:
        """See `Dealing.collect`."""
        return self._dealing.collect(kept)

    @on_device
    def train(self, kept: In[SampleGroup]) -> TrainResult:
        """Learn one step on the samples of the channel and those collected before. Raises RunError as `ActorWorker.train`."""
        trained = self._dealing.train(kept)
        return TrainResult({} if trained is None else trained[1])

    def trained_steps(self) -> int:
        """Steps trained so far, those before a resume included."""
        return self._learner.version

    def save(self, directory: str) -> None:
        """Write model and optimiser state into a directory of its own within this one."""
        own = Path(directory) / DIRECTORY
        if self.rank == 0:
            own.mkdir()
            save_state(self._algorithm, own)
        self._trainer.save(own)

    def onload(self) -> int:
        return self._trainer.onload()

    def offload(self) -> int:
        return self._trainer.offload()

    def _estimate(self, samples: list[Sample]) -> None:
        for sample, outputs in zip(samples, self._trainer.values(samples), strict=True):
            sample.values = self._algorithm.values(torch.from_numpy(outputs)).numpy()


def build_critic(config: RunConfig, device: str, ranks: Ranks) -> ValueTrainer:
    """The critic of a run. Raises UsageError where the trainer trains none."""
    extension = config.extension("trainer")
    assert extension is not None
    trainer = extension.load()
    if not isinstance(trainer, TrainsCritics):
        raise UsageError(f"trainer.name={extension.name} trains no critics, which algorithm.name={config.algorithm.name} needs")
    model = resolve_model(config.critic.model or config.model.name, config.seed, plugins())
    return trainer.critic(config.settings("trainer"), model, device, ranks,
                          config.steps * config.algorithm.epochs * config.algorithm.minibatches, config.critic.lr)

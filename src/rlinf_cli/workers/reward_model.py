"""The reward role where a reward has a model of its own: it scores many samples at once, on the role's devices."""

from __future__ import annotations

from functools import partial
from itertools import groupby

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.sources import BatchReward
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import on_device
from rlinf_cli.rl.trajectory import Sample, SampleGroup
from rlinf_cli.workers.reward import RewardWorker
from rlinf_cli.workers.scoring import Score, is_on_device, split


class RewardModelWorker(RewardWorker):
    """Every rank holds the models and takes groups as they come. Parts without a model are called as in `RewardWorker`."""

    def __init__(self, config: RunConfig, granularity: tuple[int, int] | None = None) -> None:
        super().__init__(config, granularity)
        self._models: dict[str, BatchReward] = {
            label: part.extension.load()(part.settings, self.device)
            for label, part in self._parts.items() if part.extension is not None and is_on_device(part)}
        self._one_by_one = config.deterministic
        self._values: dict[tuple[str, str], float] = {}
        """(part, sample) -> what the part's model has given, until the sample's reward is made."""
        self._here |= {label: partial(self._taken, label) for label in self._models}

    @on_device
    def score(self, samples: In[SampleGroup], scored: Out[SampleGroup]) -> None:
        """See `RewardWorker.score`."""
        self._values.clear()
        super().score(samples, scored)

    def onload(self) -> int:
        return sum(model.onload() for model in self._models.values())

    def offload(self) -> int:
        return sum(model.offload() for model in self._models.values())

    def _look_ahead(self, samples: list[Sample]) -> None:
        """All of a chunk at once, or each group by itself, so that last bits do not depend on which ones came together."""
        groups = groupby(samples, lambda sample: sample.group_id)
        for part in [list(group) for _, group in groups] if self._one_by_one else [samples]:
            for label, model in self._models.items():
                for sample, value in zip(part, model.score_batch(part), strict=True):
                    self._values[label, sample.id] = value

    def _taken(self, label: str, sample: Sample) -> Score:
        return split(self._values.pop((label, sample.id)), self._parts[label].name)

"""The reward role: scores samples as they come."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Mapping
from numbers import Real
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.sources import Reward
from rlinf_cli.flow.ports import In, Out
from rlinf_cli.flow.worker import Worker
from rlinf_cli.plugins.references import FunctionReward, load_function
from rlinf_cli.rl.trajectory import Sample, SampleGroup

log = logging.getLogger(__name__)

CHUNK = 16
"""Groups taken at once, where so many wait: enough to coalesce messages, few enough to share with other ranks."""


def build_reward(config: RunConfig) -> Reward:
    """The configured reward: an extension, or a user's `module:function`."""
    extension = config.extension("reward")
    if extension is None:
        return FunctionReward(load_function(config.reward.name))
    reward: Reward = extension.load()(config.settings("reward"))
    return reward


class RewardWorker(Worker):
    """Scores every sample; a reward that raises leaves its sample without one, never with a silent zero."""

    def __init__(self, config: RunConfig) -> None:
        self._name = config.reward.name
        self._reward = build_reward(config)
        self._reported: set[str] = set()

    def score(self, samples: In[SampleGroup], scored: Out[SampleGroup]) -> None:
        for chunk in samples.chunks(CHUNK, at_least=1):
            for group in chunk:
                for sample in group:
                    self._score(sample)
                scored.put(group, weight=sum(len(sample) for sample in group))

    def _score(self, sample: Sample) -> None:
        try:
            sample.reward, sample.rewards = split(self._reward.score(sample), self._name)
        except Exception as error:  # a user's code: whatever it raises is counted, shown and survived
            sample.error = f"{type(error).__name__}: {error}"
            self._report(sample, error)

    def _report(self, sample: Sample, error: Exception) -> None:
        kind = f"{type(error).__name__}: {error}"
        if kind not in self._reported:
            self._reported.add(kind)
            log.warning("reward %s failed on sample %s: %s\n%s", self._name, sample.id, kind, traceback.format_exc())


def split(value: float | Mapping[str, float], name: str) -> tuple[float, dict[str, float]]:
    """What is trained on, and each part by name. Raises ValueError for what is not a finite number."""
    parts: Mapping[str, Any] = value if isinstance(value, Mapping) else {"reward": value}
    if "reward" not in parts:
        raise ValueError(f"reward {name} returned {sorted(parts)} without 'reward', which is what is trained on")
    numbers = {part: _number(name, part, one) for part, one in parts.items()}
    return numbers.pop("reward"), numbers


def _number(name: str, part: str, value: Any) -> float:
    if not isinstance(value, Real) and not hasattr(value, "__float__"):
        raise ValueError(f"reward {name} gave {part}={value!r}, which is not a number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"reward {name} gave {part}={number}, which is not finite")
    return number

"""The parts of a reward: how each is made and called, and what they come to together. Knows nothing of processes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from rlinf_cli.config.schema import Part
from rlinf_cli.contracts.sources import Reward
from rlinf_cli.plugins.references import FunctionReward, load_function

if TYPE_CHECKING:
    from rlinf_cli.rl.trajectory import Sample

_NO_METRIC = re.compile(r"[^A-Za-z0-9_.@:-]+")

Score = tuple[float, dict[str, float]]
"""What a part gives: its reward, and its other values by name."""

Scorer = Callable[["Sample"], Score]


def build_reward(part: Part) -> Reward:
    """An extension's, or a user's `module:function`."""
    if part.extension is None:
        return FunctionReward(load_function(part.name))
    reward: Reward = part.extension.load()(part.settings)
    return reward


def is_isolated(part: Part) -> bool:
    """Whether it is to be called in a process that can be killed."""
    return part.extension is None or getattr(part.extension.load(), "isolated", True)


def is_on_device(part: Part) -> bool:
    """Whether it scores many samples at once with a model of its own, see `BatchReward`."""
    return bool(getattr(part.settings, "on_device", False))


def scorers(parts: Sequence[Part]) -> list[Scorer]:
    """One a part."""
    return [partial(_score, build_reward(part), part.name) for part in parts]


def _score(reward: Reward, name: str, sample: Sample) -> Score:
    return split(reward.score(sample), name)


def split(value: float | Mapping[str, float], name: str) -> Score:
    """What is trained on, and each other value by name. Raises ValueError for what is not a finite number."""
    values: Mapping[str, Any] = value if isinstance(value, Mapping) else {"reward": value}
    if "reward" not in values:
        raise ValueError(f"reward {name} returned {sorted(map(str, values))} without 'reward', which is what is trained on")
    numbers = {_named(name, one): _number(name, one, number) for one, number in values.items()}
    return numbers.pop("reward"), numbers


def _named(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value or _NO_METRIC.search(value):
        raise ValueError(f"reward {name} named a value {value!r}; names are made of letters, digits and _ . : @ -")
    return value


def _number(name: str, value: str, given: Any) -> float:
    if not isinstance(given, Real) and not hasattr(given, "__float__"):
        raise ValueError(f"reward {name} gave {value}={given!r:.80}, which is not a number")
    number = float(given)
    if not math.isfinite(number):
        raise ValueError(f"reward {name} gave {value}={number}, which is not finite")
    return number


def labels(parts: Sequence[Part]) -> list[str]:
    """What each part is called in metrics: its name; a function's own name where no other part has it."""
    short = [_NO_METRIC.sub("_", part.name.rpartition(":")[2]) for part in parts]
    return [one if short.count(one) == 1 else _NO_METRIC.sub("_", part.name) for one, part in zip(short, parts)]


def combine(weights: Mapping[str, float], given: Mapping[str, Score]) -> Score:
    """The weighted sum of all parts, `label -> weight`, and what is reported: of several parts each one's reward under
    its label and its other values under `LABEL.NAME`; of a single one its other values as they are."""
    if len(weights) == 1:
        ((label, weight),) = weights.items()
        reward, others = given[label]
        return weight * reward, others
    total, reported = 0.0, {}
    for label, weight in weights.items():
        reward, others = given[label]
        total += weight * reward
        reported[label] = reward
        reported |= {f"{label}.{name}": value for name, value in others.items()}
    return total, reported

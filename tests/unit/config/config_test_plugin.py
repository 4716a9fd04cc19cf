"""Configuration dataclasses of the extensions that the tests of the configuration register."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlinf_cli.api import key


@dataclass(frozen=True)
class Grpo:
    clip_low: float = key(0.2, gt=0, lt=1)
    """Lower clip of the ratio."""
    clip_high: float = key(0.28, gt=0)
    aggregation: str = key("token-mean", choices=("token-mean", "sequence-mean"))

    def problems(self):
        if self.clip_high < self.clip_low:
            yield f"algorithm.clip_high={self.clip_high} must not be below algorithm.clip_low"

    def problems_with(self, config):
        if config.rollout.group_size < 2:
            yield f"rollout.group_size={config.rollout.group_size}: grpo needs at least 2 samples of a prompt"


@dataclass(frozen=True)
class Torch:
    lr: float = key(1e-6, gt=0)
    """Peak learning rate."""
    betas: tuple[float, float] = key((0.9, 0.999), ge=0, lt=1)
    """Decay of the running means."""
    micro_batch_tokens: int = key(4096, ge=1)
    """Tokens that pass through the model at once."""
    train_layers: int | None = key(None, ge=1)
    """Last layers to train; null: all."""
    schedule: Literal["constant", "cosine"] = "constant"
    frozen: list[str] = key([])  # noqa: RUF009


@dataclass(frozen=True)
class Slots:
    slots: int = key(32, ge=1)
    """Sequences that are generated together."""


@dataclass(frozen=True)
class Judge:
    endpoint: str = key()
    """Address of the judge."""


@dataclass(frozen=True)
class Format:
    pattern: str = ".*"
    """What the response must match."""
    again: int = key(0, ge=0)

    def problems(self):
        if self.pattern == "(":
            yield f"reward.pattern={self.pattern} is no regular expression: reward.timeout_s does not matter"

    def problems_with(self, config):
        if self.again > config.rollout.group_size:
            yield f"reward.again={self.again} with rollout.group_size {config.rollout.group_size} is too often"


@dataclass(frozen=True)
class Board:
    project: str = ""
    """Where the run appears."""


@dataclass(frozen=True)
class Colliding:
    epochs: int = 3


@dataclass(frozen=True)
class Unsupported:
    table: dict[str, int] = field(default_factory=dict)


class NoDataclass:
    pass

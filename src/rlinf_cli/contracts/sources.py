"""Where models, data and rewards come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rlinf_cli.data.rows import Dataset as Dataset
from rlinf_cli.data.rows import Row as Row
from rlinf_cli.rl.trajectory import Sample


class ModelSource(Protocol):
    """Target of a model extension, built as `ModelSource(variant, seed)`: `model.name=NAME:VARIANT`.

    The constructor is light and raises `UsageError` naming the known variants when `variant` is none of them.
    """

    def key(self) -> str:
        """Directory name in the cache: everything that decides the content (variant, seed if used, format version)."""
        ...

    def build(self, directory: Path) -> None:
        """Write a Hugging Face directory (config, safetensors, tokenizer) into an existing empty directory."""
        ...


class Reward(Protocol):
    """Target of a reward extension, built as `Reward(config)`.

    It is called in a process of its own, which is killed when a call exceeds `reward.timeout_s`, unless its class says
    `isolated = False`: code that cannot hang, crash or print.
    """

    def score(self, sample: Sample) -> float | Mapping[str, float]:
        """Reward of one sample; several named values have `reward` among them, which is what is trained on.

        May raise: the sample is then left out of training and counted under `reward/errors`.
        """
        ...


class BatchReward(Protocol):
    """Target of a reward extension that scores many samples at once with a model of its own, on the devices of the reward role;
    built as `BatchReward(config, device)`, `device` as for an engine. Its config dataclass has an attribute `on_device`, True.
    """

    def score_batch(self, samples: Sequence[Sample]) -> Sequence[float]:
        """A number a sample. One that is not finite leaves its sample out of training, counted under `reward/errors`."""
        ...

    def onload(self) -> int:
        """As `Trainer.onload`."""
        ...

    def offload(self) -> int:
        """As `Trainer.offload`."""
        ...

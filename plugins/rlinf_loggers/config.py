"""Configuration keys of the built-in loggers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlinf_cli.api import key


@dataclass(frozen=True)
class TensorBoardConfig:
    """Keys of the logger `tensorboard`."""

    directory: str = ""
    """Directory in which the run gets one of its name; empty: `tensorboard/` in the run directory."""


@dataclass(frozen=True)
class WandbConfig:
    """Keys of the logger `wandb`."""

    project: str = ""
    """Project; empty: what `WANDB_PROJECT` says, or `rlinf`."""
    entity: str = ""
    """User or team; empty: what `WANDB_ENTITY` says, or your own."""
    group: str = ""
    """Runs of one group are shown together."""
    mode: Literal["auto", "online", "offline"] = "auto"
    """`offline` writes to the run directory only, for `wandb sync` later, and needs no account; `auto`: what `WANDB_MODE`
    says, or online."""
    tags: list[str] = field(default_factory=list)
    """Labels of the run."""


@dataclass(frozen=True)
class TrackioConfig:
    """Keys of the logger `trackio`."""

    project: str = key("rlinf", pattern=r"\w[\w.-]*", form="letters, digits and . _ - only")
    """Project. Where it is kept, `TRACKIO_DIR` or `TRACKIO_SPACE_ID` says."""

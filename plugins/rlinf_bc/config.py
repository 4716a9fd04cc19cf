"""Configuration keys of behaviour cloning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class BCConfig:
    """Keys of `algorithm.name=bc`."""

    embodied: ClassVar[bool] = True

    demos: str = "demos.hdf5"
    """File of demonstrations (`rlinf demos`). A step learns env.count * rollout.steps of their steps."""

    def problems_with(self, config: Any) -> Iterator[str]:
        """What of the whole configuration does not go with it, a sentence each."""
        if config.workflow != "cloning":
            yield (f"workflow={config.workflow} shows no demonstrations, which algorithm.name=bc learns: leave workflow out, or "
                   "set workflow=cloning")
        if not Path(self.demos).expanduser().is_file():
            yield f"algorithm.demos={self.demos} is no file: write one with rlinf demos"

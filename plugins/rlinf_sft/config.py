"""Configuration keys of supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlinf_cli.api import key


@dataclass(frozen=True)
class SFTConfig:
    """Keys of `algorithm.name=sft`."""

    aggregation: str = key("token-mean", choices=("token-mean", "sequence-mean"))
    """`token-mean`: every token of an optimiser step counts the same. `sequence-mean`: every response does, whatever its
    length."""

    @property
    def supervised(self) -> bool:
        return True

    def problems_with(self, config: Any) -> Iterator[str]:
        """What of the whole configuration does not go with it, a sentence each."""
        if config.workflow == "reasoning":
            yield ("workflow=reasoning generates responses, but algorithm.name=sft learns those in the data: leave workflow "
                   "out, or set workflow=supervised")

"""Where a run stands at a checkpoint: what `state.json` holds beside the trainer's own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class RunState:
    """The position of a run after `step` steps."""

    step: int = 0
    tokens: int = 0
    """Prompt and response tokens so far."""
    samples: int = 0
    """Responses so far."""
    batches: int = 0
    """Batches of prompts taken from the data."""
    prompts: int = 0
    """Prompts in each of these batches."""
    data: str = ""
    """Fingerprint of the data that they were taken from."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Of the step; they decide which checkpoint is the best."""
    env_steps: int = 0
    """Steps of environments so far."""

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> RunState:
        """From the content of `state.json`, whatever else it holds."""
        return cls(**{one.name: state[one.name] for one in fields(cls) if one.name in state})

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def batches_of(self, prompts: int) -> int:
        """How many batches of so many prompts were taken at least: where the data goes on when a step takes more or fewer
        prompts than before. No row comes again; up to `prompts` - 1 are left out."""
        return -(-self.batches * self.prompts // prompts)

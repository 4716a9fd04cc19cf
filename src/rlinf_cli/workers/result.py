"""What a role adds to the report of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlinf_cli.rl.trajectory import Sample
from rlinf_cli.workers.engine_share import Usage
from rlinf_cli.workers.surplus import Surplus


@dataclass
class TrainResult:
    """What a call leaves behind of a step; empty on ranks that have nothing to add."""

    metrics: dict[str, float] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    """A few, to look at."""
    tokens: int = 0
    """Prompt and response tokens of all samples of the step."""
    count: int = 0
    """Samples of the step, trainable or not."""
    left_out: Sequence[str] = ()
    """Why samples could not be trained on, a sentence for each reason that has not been told before."""
    surplus: Surplus | None = None
    """Of a call that asked more prompts than are trained; the ranks' are added up."""
    lengths: Sequence[int] = ()
    """Tokens of the responses of all samples of the step, group by group."""
    env_steps: int = 0
    """Steps of environments."""
    usage: Usage | None = None
    """Of the rank's engine, since its last call."""
    chunks: int = 0
    """Pieces in which the rank took its items; 0: it does not count them."""

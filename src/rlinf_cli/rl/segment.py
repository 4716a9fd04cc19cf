"""Experience of embodied policies: steps of many environments side by side, as arrays [time, environment, ...]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Observation: TypeAlias = "NDArray[Any] | Mapping[str, NDArray[Any]]"
"""Arrays whose first dimensions are those of the segment (or the environments alone, on their way)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode that has ended."""

    id: str
    """Unique within the run, the same after a resume."""
    environment: int
    """As in `Segment.environments`."""
    number: int
    """As in `Segment.episode_ids`."""
    group: str
    """Episodes with the same initial state and task share it."""
    task: str
    seed: int
    state: int
    returned: float
    """Sum of its rewards, undiscounted."""
    length: int
    """Environment steps."""
    success: bool | None
    """Whether the task was solved at any time; None where the simulator does not say."""
    truncated: bool
    video: bytes = b""
    """What was seen, as a file (MP4 or GIF); empty of one that was not recorded."""


@dataclass(slots=True)
class Segment:
    """T steps of E environments. Row t: what was observed, what was done, and what came of it; an episode that ends in row t is
    followed by another one in row t + 1, so nothing may be carried over where `terminated | truncated`."""

    observations: Observation
    """[T, E, ...]: before the action."""
    sampled: NDArray[Any]
    """[T, E, ...]: what log-probabilities are of, as the policy drew it: unsquashed actions, or action tokens."""
    logprobs: NDArray[np.float32]
    """[T, E, K]: of each of the K parts that were drawn (1 for a whole action, tokens of a chunk), in nats."""
    values: NDArray[np.float32]
    """[T + 1, E]: the critic's outputs, the last row for what follows the segment; zeros without a critic."""
    rewards: NDArray[np.float32]
    """[T, E]; of an action chunk the sum."""
    terminated: NDArray[np.bool_]
    """[T, E]"""
    truncated: NDArray[np.bool_]
    """[T, E]"""
    final_values: NDArray[np.float32]
    """[T, E]: the critic's output for the final observation of an episode that was truncated there; 0 elsewhere."""
    versions: NDArray[np.int32]
    """[T, E]: the policy that acted."""
    episode_ids: NDArray[np.int64]
    """[T, E]: number of the episode within the run of its environment, to keep episodes apart."""
    environments: NDArray[np.int64]
    """[E]: number of each environment within the run."""
    lost: NDArray[np.bool_]
    """[T, E]: of an episode whose simulator died: nothing of it is trained. Its last row counts as `terminated`."""
    episodes: list[Episode] = field(default_factory=list)
    """Those that ended within it."""

    @property
    def steps(self) -> int:
        """Of environments: T * E."""
        return int(self.rewards.size)

"""What an environment is: where vectorised simulators come from, and which tasks and initial states they have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from gymnasium.vector import VectorEnv
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Start:
    """How an episode begins: everything that decides its initial state."""

    seed: int
    task: str = ""
    """One of `Environment.tasks`; empty where there is only one without a name."""
    state: int = -1
    """Index among the task's initial states (`Environment.states`); -1: drawn from the seed."""


class Environment(Protocol):
    """Target of an environment extension, built as `Environment(config)` with an instance of its config dataclass; it can be
    pickled, since its instances are made in other processes.

    What an episode is like depends on its start and the actions alone: not on other instances, nor on earlier episodes. The
    constructor is light and raises UsageError for what the simulator does not know (a task, a control mode).
    """

    def tasks(self) -> Sequence[str]:
        """Names of the tasks, in a fixed order; one empty name where there is only one."""
        ...

    def states(self, task: str) -> int:
        """Initial states of a task that are known by index; 0 where they are drawn from a seed."""
        ...

    def instruction(self, task: str) -> str:
        """The task in words, for policies that read; empty where there are none."""
        ...

    def make(self, count: int, device: str, images: bool) -> VectorEnv[Any, Any, Any]:
        """So many instances in this process, with gymnasium's `AutoresetMode.DISABLED`: instances that have ended wait for
        `reset(seed=[...], options={"reset_mask": bool [count], "starts": [Start | None] * count})`, which changes the masked ones
        only; the first one masks all. `step` may be called while some wait: what it tells of them is ignored. Single spaces are
        `Box`, `Discrete`, or a `Dict` of boxes; actions may be `MultiDiscrete`. `step` tells `success` (bool [count]) in its
        infos where the simulator knows it. Arrays may be those of the call before, written anew.

        `images`: `render()` gives [count] frames, uint8 [height, width, 3], and `metadata["render_fps"]` says how many steps a
        second has. Raises PluginError where a package or a renderer that it needs is missing.

        Episodes are cut by the environment itself (`truncated`).
        """
        ...


class Expert(Protocol):
    """Shows how a task is done; holds nothing of an episode."""

    def act(self, environment: VectorEnv[Any, Any, Any], instance: int) -> NDArray[np.float32]:
        """What it would do now in one of the instances that `Environment.make` gave: an action within its space. It may look at
        more than policies are shown."""
        ...


@runtime_checkable
class Demonstrates(Protocol):
    """An environment with an expert."""

    def expert(self, task: str) -> Expert:
        """Raises UsageError for a task that it cannot do."""
        ...

"""Episodes of an environment's own expert, for policies to begin from."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.environment import Demonstrates, Environment, Start
from rlinf_cli.data.demonstrations import STATE, Demonstration
from rlinf_cli.errors import RunError, UsageError

_DEMONSTRATION = 0x64656D6F
"""Keeps the seeds of demonstrations apart from those of training and evaluation."""
_PARENT_DEATH_SIGNAL = 1
"""Option of prctl(2)."""


@dataclass(frozen=True)
class Shown:
    """What came of an episode."""

    number: int
    demonstration: Demonstration
    success: bool


@dataclass(frozen=True)
class Errand:
    """An episode that is to be shown. `noise`: standard deviation of what is added to actions, in halves of their range; the
    expert's own are what is written down, so that a policy sees how to come back from where it strays (DART, arXiv
    1703.09327)."""

    number: int
    start: Start
    noise: float


def errands(config: RunConfig, environment: Environment, episodes: int, noise: float) -> list[Errand]:
    """So many of each task, from its initial states in order, or from seeds. Raises UsageError where there is no expert for a
    task, and where there are fewer states."""
    if not isinstance(environment, Demonstrates):
        raise UsageError(f"environment '{config.env.name}' has no expert that could show anything; libero has one")
    starts = [start for task in environment.tasks() for start in _starts(config, environment, task, episodes)]
    return [Errand(number, start, noise) for number, start in enumerate(starts)]


def _starts(config: RunConfig, environment: Any, task: str, episodes: int) -> Iterator[Start]:
    environment.expert(task)
    states = environment.states(task)
    if states and episodes > states:
        raise UsageError(f"--episodes {episodes}: task '{task}' has {states} initial states")
    seeds = np.random.SeedSequence([config.seed, _DEMONSTRATION]).generate_state(episodes).tolist()
    for trial, seed in enumerate(seeds):
        yield Start(seed, task, trial if states else -1)


def demonstrate(environment: Environment, processes: int, wanted: Sequence[Errand],
                told: Callable[[Shown], None]) -> list[Shown]:
    """All of them in order, whoever shows them, in so many processes. Raises RunError when one of these dies."""
    pool = ProcessPoolExecutor(min(processes, len(wanted)), get_context("spawn"), _begin, (environment,))
    try:
        shown = []
        for one in pool.map(_show, wanted):
            told(one)
            shown.append(one)
        return shown
    except BrokenProcessPool as error:
        raise RunError("a process that showed demonstrations has died") from error
    finally:
        pool.shutdown(cancel_futures=True)


_stages: list[Stage] = []
"""The one of this process."""


def _begin(environment: Environment) -> None:
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    _stages.append(Stage(environment))


def _show(errand: Errand) -> Shown:
    return _stages[0].show(errand)


class Stage:
    """One instance of an environment, in which its expert acts."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._instance: Any = environment.make(1, "cpu", False)

    def show(self, errand: Errand) -> Shown:
        """One episode, a function of the errand alone."""
        environment: Any = self._environment
        start, random = errand.start, np.random.default_rng(errand.start.seed)
        expert = environment.expert(start.task)
        seen, _ = self._instance.reset(seed=[start.seed], options={"reset_mask": np.ones(1, np.bool_), "starts": [start]})
        observations, actions, rewards, success, ended = [], [], [], False, False
        while not ended:
            observations.append(_first(seen))
            actions.append(expert.act(self._instance, 0))
            done = self._strayed(actions[-1], errand.noise, random)
            seen, reward, terminated, truncated, infos = self._instance.step(done[None])
            rewards.append(float(reward[0]))
            success |= bool(infos["success"][0])
            ended = bool(terminated[0] or truncated[0])
        stacked = {name: np.stack([one[name] for one in observations]) for name in observations[0]}
        return Shown(errand.number, Demonstration(stacked, np.stack(actions), np.array(rewards, np.float32), start.task,
                                                  environment.instruction(start.task), start.seed, start.state), success)

    def _strayed(self, action: NDArray[Any], noise: float, random: np.random.Generator) -> NDArray[Any]:
        if not noise:
            return action
        space = self._instance.single_action_space
        spread = noise * (space.high - space.low) / 2
        strayed: NDArray[Any] = np.clip(action + spread * random.standard_normal(action.shape), space.low, space.high)
        return strayed.astype(action.dtype)


def _first(observation: Any) -> Mapping[str, NDArray[Any]]:
    """Of one instance, by name; copies."""
    named = observation if isinstance(observation, Mapping) else {STATE: observation}
    return {name: np.array(array[0]) for name, array in named.items()}

"""The demonstrations role: what was demonstrated, as experience that the policy could have had."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Dict, Space
from numpy.typing import NDArray

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.policy import Imitates
from rlinf_cli.data.demonstrations import STATE, Arrays, Demonstration, read_demonstrations
from rlinf_cli.errors import UsageError
from rlinf_cli.flow.ports import Out
from rlinf_cli.flow.worker import Worker
from rlinf_cli.rl.segment import Observation, Segment
from rlinf_cli.workers.environments.buffers import part
from rlinf_cli.workers.environments.build import build_environment, chunk_of, spaces
from rlinf_cli.workers.policies import Actor, build_policy, tensors
from rlinf_cli.workers.result import TrainResult


class DemonstrationsWorker(Worker):
    """Draws env.count * rollout.steps steps at a time, all of them once before any comes again. Raises UsageError for
    demonstrations that are not of the environment, and for a policy that cannot imitate."""

    def __init__(self, config: RunConfig) -> None:
        path = Path(config.settings("algorithm").demos).expanduser()
        shown = read_demonstrations(path)
        observation_space, action_space = spaces(config)
        require_fit(shown, observation_space, action_space, path)
        policy = build_policy(config, (observation_space, action_space), "cpu")
        if not isinstance(policy, Imitates):
            raise UsageError(f"model.name={config.model.name} cannot imitate: it does not say how it would have drawn an action")
        self._shape = config.rollout.steps, config.env.count
        self._seed = config.seed
        self._drawn = policy.drawn(torch.from_numpy(chunked(shown, chunk_of(config)))).numpy()
        self._seen = Actor(config, policy, "cpu", np.zeros(1, np.int64)).seen(observed(shown), task_numbers(config, shown))
        one = np.zeros(1, np.int64)
        with torch.no_grad():
            judged = policy.evaluate(tensors(part(self._seen, one), "cpu"), torch.from_numpy(self._drawn[one]))
        self._parts = judged.logprobs.shape[1]
        self._order = lru_cache(2)(self._permutation)

    def show(self, segments: Out[Segment], step: int) -> TrainResult:
        """One segment, the same at the same step of any run with this seed."""
        steps, count = self._shape
        rows = self._rows(step * steps * count, steps * count)
        segments.put(self._segment(rows.reshape(steps, count), step))
        return TrainResult()

    def _rows(self, first: int, count: int) -> NDArray[np.int64]:
        total = len(self._drawn)
        return np.array([self._order(place // total)[place % total] for place in range(first, first + count)], np.int64)

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self._seed, epoch]).permutation(len(self._drawn))

    def _segment(self, rows: NDArray[np.int64], step: int) -> Segment:
        zeros, no = np.zeros(rows.shape, np.float32), np.zeros(rows.shape, np.bool_)
        return Segment(part(self._seen, rows), self._drawn[rows], np.zeros((*rows.shape, self._parts), np.float32),
                       np.zeros((len(rows) + 1, rows.shape[1]), np.float32), zeros, no, no, zeros,
                       np.full(rows.shape, step - 1, np.int32), rows, np.arange(rows.shape[1]), no)


def require_fit(shown: Sequence[Demonstration], observation: Space[Any], action: Space[Any], path: Path) -> None:
    """Raises UsageError unless they are of an environment with these spaces."""
    wanted = dict(observation.items()) if isinstance(observation, Dict) else {STATE: observation}
    for one in shown:
        found: Arrays = {**one.observations, "the action": one.actions}
        for name, space in [*wanted.items(), ("the action", action)]:
            if name not in found:
                raise UsageError(f"{path} does not have '{name}', which the environment shows; it has "
                                 f"{', '.join(one.observations)}")
            if found[name].shape[1:] != space.shape:
                raise UsageError(f"{path} is of another environment: {name} is {list(found[name].shape[1:])} there, and "
                                 f"{list(space.shape or ())} here")


def chunked(shown: Sequence[Demonstration], chunk: int) -> NDArray[Any]:
    """What is done from each step on, [N, chunk, ...], or [N, ...] of a chunk of one; the last action goes on at the end."""
    if chunk == 1:
        return np.concatenate([one.actions for one in shown])
    windows = [np.minimum(np.arange(len(one))[:, None] + np.arange(chunk), len(one) - 1) for one in shown]
    return np.concatenate([one.actions[window] for one, window in zip(shown, windows, strict=True)])


def observed(shown: Sequence[Demonstration]) -> Observation:
    """[N, ...]; by name where there are several."""
    joined = {name: np.concatenate([one.observations[name] for one in shown]) for name in shown[0].observations}
    return joined[STATE] if list(joined) == [STATE] else joined


def task_numbers(config: RunConfig, shown: Sequence[Demonstration]) -> NDArray[np.int64]:
    """[N]: place of each step's task among the environment's. Raises UsageError for a task that it does not have."""
    tasks = list(build_environment(config).tasks())
    unknown = [one.task for one in shown if one.task not in tasks]
    if unknown:
        raise UsageError(f"the demonstrations are of task '{unknown[0]}', which env.name={config.env.name} does not have")
    return np.concatenate([np.full(len(one), tasks.index(one.task)) for one in shown])

"""A step's experience of some environments, as it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.policy import Acted
from rlinf_cli.rl.segment import Observation, Segment
from rlinf_cli.workers.environments.posting import named, unnamed
from rlinf_cli.workers.environments.simulators import Arrival


class Collector:
    """Of E environments, T actions in each. `take` and `add` alternate; a last `take` ends it."""

    def __init__(self, environments: NDArray[np.int64], steps: int) -> None:
        self._environments, self._steps = environments, steps
        shape = steps, len(environments)
        self._rewards = np.zeros(shape, np.float32)
        self._terminated, self._truncated, self._lost = (np.zeros(shape, np.bool_) for _ in range(3))
        self._versions, self._numbers = np.zeros(shape, np.int32), np.zeros(shape, np.int64)
        self._values = np.zeros((steps + 1, len(environments)), np.float32)
        self._observations: dict[str, NDArray[Any]] = {}
        self._is_mapping = False
        self._sampled, self._logprobs = np.empty(0), np.empty(0, np.float32)
        self._finals: list[tuple[int, int, Observation, int]] = []
        """Where episodes were cut off, at what, and their task."""
        self._tasks = np.zeros(len(environments), np.int64)
        self.lacks_values = False
        """Whether the values of what was acted on are still to be told."""

    def take(self, t: int, arrival: Arrival, seen: Observation) -> Observation:
        """Before action t: what came of the one before, and what is acted on next, `seen`; a copy of it that stays."""
        if t:
            self._outcome(t - 1, arrival)
        self._tasks = arrival.tasks.copy()
        if t < self._steps:
            self._numbers[t] = arrival.numbers
        return self._kept(t, seen)

    def add(self, t: int, acted: Acted, version: int) -> NDArray[Any]:
        """Action t; as the environments take it."""
        sampled, logprobs = acted.sampled.cpu().numpy(), acted.logprobs.cpu().numpy()
        if not t:
            self._sampled = np.empty((self._steps, *sampled.shape), sampled.dtype)
            self._logprobs = np.empty((self._steps, *logprobs.shape), np.float32)
        self._sampled[t], self._logprobs[t] = sampled, logprobs
        if acted.values is not None:
            self._values[t] = acted.values.cpu().numpy()
        self.lacks_values |= acted.values is None
        self._versions[t] = version
        actions: NDArray[Any] = acted.actions.cpu().numpy()
        return actions

    def seen(self) -> Observation:
        """All that was acted on, and what follows: [(T + 1) * E, ...]."""
        rows = {name: array.reshape(-1, *array.shape[2:]) for name, array in self._observations.items()}
        return unnamed(rows, self._is_mapping)

    def cut_off(self) -> tuple[Observation, NDArray[np.int64]] | None:
        """The observations [F, ...] at which episodes were cut off, whose values are wanted, and their tasks [F]."""
        if not self._finals:
            return None
        rows = [named(observation) for _, _, observation, _ in self._finals]
        batch = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        return unnamed(batch, isinstance(self._finals[0][2], Mapping)), np.array([task for *_, task in self._finals])

    def segment(self, values: NDArray[np.float32], final_values: NDArray[np.float32]) -> Segment:
        """All of it, with the values of what follows, [E], or, where it `lacks_values`, of all that was `seen`; and those of
        what `cut_off` gave."""
        if self.lacks_values:
            self._values[:] = values.reshape(self._values.shape)
        else:
            self._values[self._steps] = values
        finals = np.zeros_like(self._rewards)
        for (t, e, _, _), value in zip(self._finals, final_values.tolist(), strict=True):
            finals[t, e] = value
        observations = {name: array[: self._steps] for name, array in self._observations.items()}
        return Segment(unnamed(observations, self._is_mapping), self._sampled, self._logprobs, self._values,
                       self._rewards, self._terminated, self._truncated, finals, self._versions, self._numbers,
                       self._environments, self._lost)

    def _outcome(self, t: int, arrival: Arrival) -> None:
        self._rewards[t], self._terminated[t], self._truncated[t] = arrival.reward, arrival.terminated, arrival.truncated
        if arrival.lost.any():
            for e in np.flatnonzero(arrival.lost).tolist():
                self._lost[: t + 1, e] |= self._numbers[: t + 1, e] == self._numbers[t, e]
                self._terminated[t, e] = True
        for e, final in arrival.final.items():
            copied = {name: array.copy() for name, array in final.items()} if isinstance(final, Mapping) else final.copy()
            self._finals.append((t, e, copied, int(self._tasks[e])))

    def _kept(self, t: int, seen: Observation) -> Observation:
        arrays = named(seen)
        if not t:
            self._is_mapping = isinstance(seen, Mapping)
            self._observations = {name: np.empty((self._steps + 1, *array.shape), array.dtype)
                                  for name, array in arrays.items()}
        for name, array in arrays.items():
            self._observations[name][t] = array
        kept = {name: array[t] for name, array in self._observations.items()}
        return unnamed(kept, self._is_mapping)

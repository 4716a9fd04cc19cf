"""The environments of one rank: a pool, the episodes that it goes through, and what is known of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.environment import Start
from rlinf_cli.rl.segment import Episode, Observation
from rlinf_cli.workers.environments.pool import Pool, Stepped
from rlinf_cli.workers.environments.recording import Recorder
from rlinf_cli.workers.environments.starts import Numbered, Plan


@dataclass(slots=True)
class Arrival:
    """What the policy is told of E environments: what came of its last action, and what it is to act on now."""

    observation: Observation
    """[E, ...]: to be copied, it may lie where the next one will."""
    reward: NDArray[np.float32]
    """[E], like the others."""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    final: Mapping[int, Observation]
    """Row -> what was observed last, of episodes that were cut off."""
    numbers: NDArray[np.int64]
    """Of the episodes that are under way."""
    ages: NDArray[np.int64]
    """Actions that were taken in them."""
    tasks: NDArray[np.int64]
    """Place of their task among the environment's; -1: of nothing that counts."""


MakePool = Callable[[Callable[[int], Start]], Pool]


class _Rows:
    """Of all environments of the rank."""

    def __init__(self, count: int) -> None:
        self.returned, self.success = np.zeros(count), np.zeros(count, np.bool_)
        self.length, self.ages, self.numbers, self.tasks = (np.zeros(count, np.int64) for _ in range(4))


class Simulators:
    """`first`: number within the run of the first environment; those of half h are h * E ... (h + 1) * E - 1 after it.

    `episodes`: those that have ended and that nobody has taken yet · `wanted`: with so many there is nothing more to do; None:
    there always is · `recorder`: makes videos of episodes, of a pool with `images`.
    """

    def __init__(self, make: MakePool, plan: Plan, tasks: Mapping[str, int], first: int, count: int,
                 wanted: int | None = None, recorder: Recorder | None = None) -> None:
        self._wanted, self._recorder = wanted, recorder
        self._plan, self._tasks, self.first = plan, tasks, first
        self._rows = _Rows(count)
        self._running: list[Numbered] = []
        """Episodes under way."""
        self._next: list[deque[Numbered]] = [deque() for _ in range(count)]
        self.episodes: list[Episode] = []
        self._pool = make(self._ask)
        self.size = self._pool.size
        self._latest: dict[int, Observation] = {}
        self.observation_space, self.action_space = self._pool.observation_space, self._pool.action_space

    @property
    def halves(self) -> range:
        return range(len(self._next) // self.size)

    def begin(self) -> None:
        """New episodes everywhere."""
        for asked in self._next:
            asked.clear()
        self._running = [self._plan.following(i) for i in range(len(self._next))]
        for half in self.halves:
            rows = self._slice(half)
            for i in range(len(self._next))[rows]:
                self._enter(i)
            self._latest[half] = self._pool.reset(half, [one.start for one in self._running[rows]])
            self._see(half)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing more to do."""
        return self._wanted is not None and len(self.episodes) >= self._wanted

    @property
    def is_under_way(self) -> bool:
        return bool(self._latest)

    def latest(self, half: int) -> Arrival:
        """What `receive` gave last, or `begin`, as if nothing had come before."""
        return self._arrival(half, self._latest[half])

    def send(self, half: int, actions: NDArray[Any]) -> None:
        self._pool.send(half, actions)

    def receive(self, half: int) -> Arrival:
        stepped = self._pool.receive(half)
        rows, own = self._slice(half), self._rows
        own.returned[rows] += stepped.reward
        own.length[rows] += stepped.length
        own.ages[rows] += 1
        if stepped.success is not None:
            own.success[rows] |= stepped.success
        for row in stepped.began:
            self._change(rows.start + row, row, stepped)
        final = {row: one for row, one in stepped.final_observations.items()
                 if stepped.truncated[row] and not stepped.terminated[row]}
        self._latest[half] = stepped.observation
        self._see(half)
        return self._arrival(half, stepped.observation, stepped.reward, stepped.terminated, stepped.truncated, stepped.lost,
                             final)

    def take_episodes(self) -> list[Episode]:
        """Those that have ended since this was asked last."""
        episodes, self.episodes = self.episodes, []
        return episodes

    def close(self) -> None:
        self._pool.close()

    def _slice(self, half: int) -> slice:
        return slice(half * self.size, (half + 1) * self.size)

    def _ask(self, environment: int) -> Start:
        """For the pool, one episode ahead."""
        following = self._plan.following(environment)
        self._next[environment].append(following)
        return following.start

    def _change(self, i: int, row: int, stepped: Stepped) -> None:
        """One episode of environment i is over, or lost, and the next one under way."""
        if stepped.lost[row]:
            self._plan.again(i, self._running[i])
            if self._recorder is not None:
                self._recorder.forget(self._running[i].number)
        elif self._running[i].number >= 0:
            self.episodes.append(self._ended(i, stepped.success is not None, bool(stepped.truncated[row])))
        self._running[i] = self._next[i].popleft()
        self._enter(i)

    def _ended(self, i: int, knows_success: bool, truncated: bool) -> Episode:
        one, rows, environment = self._running[i], self._rows, self.first + i
        video = b"" if self._recorder is None else self._recorder.video(one.number, self._pool.fps)
        return Episode(f"{environment}-{one.number}", environment, one.number, one.group, one.start.task, one.start.seed,
                       one.start.state, float(rows.returned[i]), int(rows.length[i]),
                       bool(rows.success[i]) if knows_success else None, truncated, video)

    def _see(self, half: int) -> None:
        if self._recorder is not None:
            self._recorder.see(self._pool, half, self._rows.numbers[self._slice(half)].tolist())

    def _enter(self, i: int) -> None:
        one, rows = self._running[i], self._rows
        rows.returned[i], rows.length[i], rows.ages[i], rows.success[i] = 0, 0, 0, False
        rows.numbers[i], rows.tasks[i] = one.number, self._tasks[one.start.task] if one.number >= 0 else -1

    def _arrival(self, half: int, observation: Observation, reward: NDArray[np.float32] | None = None,
                 terminated: NDArray[np.bool_] | None = None, truncated: NDArray[np.bool_] | None = None,
                 lost: NDArray[np.bool_] | None = None, final: Mapping[int, Observation] | None = None) -> Arrival:
        rows, none = self._slice(half), np.zeros(self.size, np.bool_)
        own = self._rows
        return Arrival(observation, np.zeros(self.size, np.float32) if reward is None else reward,
                       none if terminated is None else terminated, none if truncated is None else truncated,
                       none if lost is None else lost, final or {}, own.numbers[rows], own.ages[rows], own.tasks[rows])

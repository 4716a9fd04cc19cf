"""The instances that one process has of a half: stepped, and begun again when they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.environment import Start
from rlinf_cli.rl.segment import Observation
from rlinf_cli.workers.environments.buffers import Buffers, put

if TYPE_CHECKING:
    from gymnasium.vector import VectorEnv


class Share:
    """Instances with the rows that are theirs, and the start of each one's next episode."""

    def __init__(self, environment: VectorEnv[Any, Any, Any], chunk: int) -> None:
        self.environment, self._chunk = environment, chunk
        self._next: list[Start | None] = [None] * environment.num_envs
        self.tells_success = False
        """Whether the simulator has said so far which instances have solved their task."""

    def use(self, buffers: Buffers) -> None:
        """Read actions from there, and write what comes of them."""
        self._out = buffers

    def expect(self, starts: Mapping[int, Start]) -> None:
        """How the next episodes of some rows will begin."""
        for row, start in starts.items():
            self._next[row] = start

    def reset(self, starts: Sequence[Start]) -> None:
        """Begin an episode in every row."""
        put(self._out.observation, self._begin(np.ones(len(starts), np.bool_), starts))

    def step(self) -> None:
        """Act, once or for a chunk of actions; rows whose episode has ended begin their next one after that."""
        out, action = self._out, self._out.action
        self._first(*self.environment.step(action if self._chunk == 1 else action[:, 0]))
        for step in range(1, self._chunk):
            running = ~(out.terminated | out.truncated)
            if not running.any():
                break
            self._further(running, *self.environment.step(action[:, step]))
        ended = out.terminated | out.truncated
        if ended.any():
            put(out.final, out.observation, ended)
            put(out.observation, self._begin(ended, self._next), ended)

    def _first(self, observation: Observation, reward: Any, terminated: Any, truncated: Any, infos: dict[str, Any]) -> None:
        out = self._out
        put(out.observation, observation)
        out.reward[:], out.terminated[:], out.truncated[:] = reward, terminated, truncated
        out.success[:] = self._success(infos)
        out.length[:] = 1

    def _further(self, running: NDArray[np.bool_], observation: Observation, reward: Any, terminated: Any, truncated: Any,
                 infos: dict[str, Any]) -> None:
        """Rows whose episode ended earlier in the chunk stay as they are."""
        out = self._out
        put(out.observation, observation, running)
        np.add(out.reward, reward, out=out.reward, where=running, casting="same_kind")
        out.terminated |= running & terminated
        out.truncated |= running & truncated
        out.success |= running & self._success(infos)
        out.length += running

    def _success(self, infos: dict[str, Any]) -> Any:
        told = infos.get("success")
        if told is None:
            return False
        self.tells_success = True
        return told

    def _begin(self, mask: NDArray[np.bool_], starts: Sequence[Start | None]) -> Observation:
        seeds: list[int | None] = [None] * len(starts)
        masked: list[Start | None] = [None] * len(starts)
        for row in np.flatnonzero(mask).tolist():
            start = masked[row] = starts[row]
            seeds[row] = None if start is None else start.seed
        options = {"reset_mask": mask, "starts": masked}
        observation: Observation = self.environment.reset(seed=seeds, options=options)[0]  # type: ignore[arg-type]
        return observation

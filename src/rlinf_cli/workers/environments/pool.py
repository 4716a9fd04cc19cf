"""Instances of an environment in one or several processes, stepped in halves."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.environment import Environment, Start
from rlinf_cli.errors import RunError
from rlinf_cli.rl.segment import Observation
from rlinf_cli.workers.environments.buffers import Allocate, Buffers, Carve, Measure, buffers, part, private
from rlinf_cli.workers.environments.members import Elsewhere, Frames, Here, Lost, Member
from rlinf_cli.workers.environments.order import Layout, Order

PATIENCE_S = 600.0
"""A process that takes longer over a step is killed and counts as lost."""
_RESTARTS = 20
"""Of the processes of a pool, in its whole life."""


@dataclass(slots=True)
class Stepped:
    """What came of the actions of a half; rows are its E instances. Arrays are the caller's to keep, but for `observation`."""

    observation: Observation
    """[E, ...]: what to act on next; of a row whose episode ended, the first of the one that followed. It lies where the next
    `send` of this half writes: copy what is to be kept."""
    reward: NDArray[np.float32]
    """[E]; of a chunk the sum, up to the end of the episode."""
    terminated: NDArray[np.bool_]
    """[E]"""
    truncated: NDArray[np.bool_]
    """[E]; a row can be both."""
    final_observations: dict[int, Observation]
    """Row -> the last observation of the episode that ended there."""
    success: NDArray[np.bool_] | None
    """[E]: whether the task was solved in this step; None where the simulator does not say."""
    length: NDArray[np.int32]
    """[E]: steps that were made: 1, or up to the chunk."""
    lost: NDArray[np.bool_]
    """[E]: the process of these rows is gone, and their episodes with it, which neither terminated nor were truncated; reward
    and length are 0, and `observation` is the first of the next episode."""
    began: dict[int, Start]
    """Row -> how the episode began that follows one that ended or was lost."""


class Pool:
    """`count` instances of an environment, spread over processes, in `halves` that are stepped independently of each other.

    With one process the instances live in this one, and `send` steps them; with more, each process has its share of every
    half, and steps while this one goes on. Environment i (0 <= i < count) is row i % E of half i // E, E = count // halves.
    What an episode is like depends on its start and the actions alone.

    `next_start(i)` says how the next episode of environment i begins. It is asked one episode ahead, so that a process need
    not ask when one ends. `chunk`: environment steps that an action is for; actions are then [E, chunk, ...].

    Raises RlinfError when the instances cannot be made. A simulator that raises ends `send` or `receive` the same way; a
    process that is killed is started again.
    """

    def __init__(self, environment: Environment, count: int, processes: int, device: str, next_start: Callable[[int], Start], *,
                 halves: int = 1, chunk: int = 1, images: bool = False, patience: float = PATIENCE_S) -> None:
        assert count % halves == 0, "halves are of one size"
        assert 1 <= processes <= count // halves, "each process has instances of each half"
        self.halves, self.size = halves, count // halves
        """Instances of a half: `size`."""
        self.restarts = 0
        """Processes that were lost and started again."""
        self.lost_episodes = 0
        """Episodes that were under way in them."""
        self._next_start, self._patience, self._chunk = next_start, patience, chunk
        edges = [index * self.size // processes for index in range(processes + 1)]
        self._rows = [slice(*pair) for pair in itertools.pairwise(edges)]
        self._orders = [Order(environment, rows.stop - rows.start, halves, device, images, chunk) for rows in self._rows]
        self._member_of = [index for index, rows in enumerate(self._rows) for _ in range(self.size)[rows]]
        self._states = [_Half(self.size, processes) for _ in range(halves)]
        self._buffers: list[Buffers] = []
        self._members: list[Member] = []
        self._memory = -1
        with self._closed_if_it_fails():
            self._make()

    def _make(self) -> None:
        if len(self._orders) == 1:
            self._members.append(Here(self._orders[0]))
        else:
            started = [Elsewhere(order, self._patience) for order in self._orders]
            self._members.extend(started)
            for one in started:
                one.meet()
        self.observation_space, self.action_space = self._members[0].spaces
        """Of one instance."""
        self.fps = self._members[0].fps
        """Steps that a second of what is simulated has."""
        self._buffers = self._laid_out(private) if len(self._orders) == 1 else self._shared()
        for index in range(len(self._members)):
            self._give_memory(index)

    def _shared(self) -> list[Buffers]:
        """In memory without a name, which goes with the last process that has it."""
        measure = Measure()
        self._laid_out(measure)
        self._memory = os.memfd_create("rlinf-environments")
        os.truncate(self._memory, measure.size)
        return self._laid_out(Carve(mmap.mmap(self._memory, measure.size)))

    def _laid_out(self, allocate: Allocate) -> list[Buffers]:
        spaces = self.observation_space, self.action_space
        return [buffers(*spaces, self.size, self._chunk, allocate) for _ in self._states]

    def _give_memory(self, index: int) -> None:
        self._members[index].use(self._buffers, Layout(self.size, self._rows[index]), self._memory)

    @contextlib.contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the processes that it has started."""
        return [member.pid for member in self._members if isinstance(member, Elsewhere)]

    def reset(self, half: int, starts: Sequence[Start]) -> Observation:
        """Begin an episode in every row of a half, whatever was under way, and ask for those after them, whatever was asked for
        before. The observation is like that of `Stepped`."""
        state = self._states[half]
        state.running = list(starts)
        state.next = [self._next_start(half * self.size + row) for row in range(self.size)]
        state.resetting, state.owing = True, list(range(len(self._members)))
        for index in state.owing:
            self._reset(index, half)
        self._collect(half)
        state.resetting = False
        state.lost[:] = False
        state.began.clear()
        return self._buffers[half].observation

    def _reset(self, index: int, half: int) -> None:
        """Begin what is to run in the rows of a process, and tell it what comes after that."""
        state, rows = self._states[half], self._rows[index]
        state.unsent[index] = dict(enumerate(state.next[rows]))
        self._members[index].reset(half, state.running[rows])

    def send(self, half: int, actions: Any) -> None:
        """Act in every row of a half: [E, ...] as the action space has it, or [E, chunk, ...]."""
        state = self._states[half]
        assert not state.owing, "an answer of this half is still to be received"
        self._buffers[half].action[:] = actions
        for index, member in enumerate(self._members):
            if not state.lost[self._rows[index]].any():  # else the action was for an episode that is gone
                state.owing.append(index)
                member.step(half, state.unsent[index])
                state.unsent[index] = {}

    def receive(self, half: int) -> Stepped:
        """What came of it; waits until it is there."""
        self._collect(half)
        state, out = self._states[half], self._buffers[half]
        if state.lost.any():
            for array in (out.reward, out.terminated, out.truncated, out.success, out.length):
                array[state.lost] = 0
        ended = np.flatnonzero(out.terminated | out.truncated)
        finals = part(out.final, ended)
        rows = ended.tolist()
        for row in rows:
            self._advance(half, row)
        stepped = Stepped(
            out.observation, out.reward.copy(), out.terminated.copy(), out.truncated.copy(),
            {row: part(finals, place) for place, row in enumerate(rows)}, out.success.copy() if state.tells_success else None,
            out.length.copy(), state.lost.copy(), state.began)
        state.began = {}
        state.lost[:] = False
        return stepped

    def render(self, half: int) -> Frames:
        """A frame of every row, uint8 [height, width, 3], of a pool with `images`. Raises RunError when a process is gone."""
        assert not self._states[half].owing, "an answer of this half is still to be received"
        return [frame for member in self._members for frame in member.render(half)]

    def close(self) -> None:
        """End its processes. It may be called again."""
        for member in self._members:
            member.close()
        self._members, self._buffers = [], []
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _collect(self, half: int) -> None:
        state = self._states[half]
        while state.owing:
            index = state.owing[0]
            try:
                state.tells_success |= self._members[index].finish(half)
                state.owing.remove(index)
            except Lost as lost:
                self._revive(index, lost)

    def _advance(self, half: int, row: int) -> None:
        """An episode has begun in place of another: ask how the one after it will begin."""
        state, index = self._states[half], self._member_of[row]
        state.began[row] = state.running[row] = state.next[row]
        state.next[row] = self._next_start(half * self.size + row)
        state.unsent[index][row - self._rows[index].start] = state.next[row]

    def _revive(self, index: int, lost: Lost) -> None:
        """Start a process again; its rows begin their next episodes (once more, where nobody knows of them yet)."""
        rows = range(self.size)[self._rows[index]]
        for half, state in enumerate(self._states):
            state.owing = [other for other in state.owing if other != index]
            if state.next and not state.resetting and not state.lost[self._rows[index]].any():
                state.lost[self._rows[index]] = True
                self.lost_episodes += len(rows)
                for row in rows:
                    self._advance(half, row)
        while not self._started_again(index, lost):
            pass

    def _started_again(self, index: int, lost: Lost) -> bool:
        self.restarts += 1
        if self.restarts > _RESTARTS:
            raise RunError(f"environment processes were lost {self.restarts} times; of the last one: {lost}")
        self._members[index].close()
        self._members[index] = member = Elsewhere(self._orders[index], self._patience)
        member.meet()
        try:
            self._give_memory(index)
            for half, state in enumerate(self._states):
                if state.next:
                    self._reset(index, half)
                    member.finish(half)
        except Lost:
            return False
        return True


class _Half:
    """Where the rows of a half stand."""

    def __init__(self, size: int, processes: int) -> None:
        self.running: list[Start] = []
        """How the episodes began that are under way."""
        self.next: list[Start] = []
        """How those after them will begin; empty before the first reset."""
        self.unsent: list[dict[int, Start]] = [{} for _ in range(processes)]
        """Of each process, by its own rows: those of `next` that it has not been told."""
        self.owing: list[int] = []
        """Processes that have been told to act, or to begin, and have not answered."""
        self.resetting = False
        self.lost = np.zeros(size, np.bool_)
        """Rows whose episode is gone, which the next answer has to tell."""
        self.began: dict[int, Start] = {}
        """Episodes that began since the last answer."""
        self.tells_success = False

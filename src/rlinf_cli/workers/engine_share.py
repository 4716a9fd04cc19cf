"""One engine for several calls at once.

Whichever call finds nobody at it drives the engine for all: it collects, and hands each completion to the call whose
request it was. Calls that were issued first come first to the engine's room.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rlinf_cli.contracts.engine import Completion, Engine, Request
from rlinf_cli.errors import RunError


@dataclass
class Usage:
    """What driving an engine took. `decoding`: active responses -> [decode steps, seconds], where no prompt was read on the way;
    `mixed`: the same where some were, which were `read` tokens long · `undriven`: active responses -> decode steps that an engine
    that runs by itself made in between · `occupied`: seconds in which there were requests."""

    slots: int = 0
    decoding: dict[int, list[float]] = field(default_factory=dict)
    mixed: dict[int, list[float]] = field(default_factory=dict)
    read: int = 0
    undriven: dict[int, float] = field(default_factory=dict)
    occupied: float = 0.0

    def add(self, active: int, steps: float, seconds: float, read: int) -> None:
        entry = (self.mixed if read else self.decoding).setdefault(active, [0.0, 0.0])
        entry[0] += steps
        entry[1] += seconds
        self.read += read


SLICE_S = 0.005
"""Longest time for which the engine is driven before others, who want to submit, have their turn."""


class Stake:
    """What one call has in the engine."""

    def __init__(self) -> None:
        self.ids: set[str] = set()
        """Requests that have not ended."""
        self.promised = 0
        """Responses that it has been given room for, and has not submitted."""
        self.ended: list[Completion] = []
        """Not yet taken by the call."""
        self.wants = True
        """Whether there may be more prompts for it: later calls leave it the room."""
        self.evaluates = False
        self.error: Exception | None = None


class EngineShare:
    """Thread-safe; the engine sees one thread at a time submit and collect.

    `ahead`: responses that may wait in the engine's queue for those that it works on to end.
    """

    def __init__(self, engine: Engine, ahead: int = 0) -> None:
        self.engine, self._ahead = engine, ahead
        self._changed = threading.Condition()
        self._stakes: list[Stake] = []
        """Of the calls that run, in the order in which they were issued."""
        self._owners: dict[str, Stake] = {}
        self._driven = False
        self._queueing = 0
        """Calls that want to submit: who drives lets them."""
        self._updates = 0
        """Under way, or held back by an evaluation."""
        self._closed: Exception | None = None
        self._usage = Usage(engine.capacity)
        self._steps = engine.stats()["steps"]
        """When it was driven last."""
        self._occupied_since: float | None = None

    def usage(self) -> Usage:
        """Since this was asked last."""
        with self._changed:
            self._count_occupied()
            usage, self._usage = self._usage, Usage(self.engine.capacity)
            return usage

    @contextmanager
    def stake(self) -> Iterator[Stake]:
        """A call's, from its begin to its end; what is still under way then is ended and forgotten."""
        stake = Stake()
        with self._changed:
            stake.error = self._closed
            self._stakes.append(stake)
        try:
            yield stake
        finally:
            self.withdraw(stake)
            with self._changed:
                self._stakes.remove(stake)
                self._changed.notify_all()

    def room(self, stake: Stake, responses: int, most: int) -> int:
        """Prompts, of so many responses each, that a call may take now, `most` at most: one at least where the engine has
        nothing to do, none as long as an earlier call wants more. The room is the call's until it submits or says `tell`."""
        with self._changed:
            earlier = itertools.takewhile(lambda other: other is not stake, self._stakes)
            if any(other.wants for other in earlier):
                return 0
            used = len(self._owners) + sum(other.promised for other in self._stakes if other is not stake)
            room = min(max((self.engine.capacity + self._ahead - used) // responses, 0 if used else 1), most)
            stake.promised = room * responses
            return room

    def await_room(self, timeout: float) -> None:
        """Wait until something has changed."""
        with self._changed:
            self._changed.wait(timeout)

    def tell(self, stake: Stake, wants: bool, promised: int = 0) -> None:
        """Whether there may be more prompts for a call, and how many responses it is about to submit."""
        if (stake.wants, stake.promised) != (wants, promised):
            with self._changed:
                stake.wants, stake.promised = wants, promised
                self._changed.notify_all()

    def submit(self, stake: Stake, requests: Sequence[Request]) -> None:
        """Queue requests of a call. Raises as the engine's `submit`."""
        with self._baton():
            self.engine.submit(requests)
            with self._changed:
                stake.promised = 0
                stake.ids.update(request.id for request in requests)
                self._owners.update((request.id, stake) for request in requests)
                self._count_occupied()

    def collect(self, stake: Stake, timeout: float) -> list[Completion]:
        """What has ended of a call's requests; [] after `timeout` seconds. Raises what the engine has raised."""
        self._work(stake, timeout)
        with self._changed:
            if stake.error is not None:
                raise stake.error
            ended, stake.ended = stake.ended, []
            return ended

    def withdraw(self, stake: Stake) -> list[Completion]:
        """End a call's requests: what they had, and what has not been collected."""
        if stake.ids and stake.error is None:
            self.engine.abort(list(stake.ids))
        while stake.ids and stake.error is None:
            self._work(stake, SLICE_S, all_of_it=True)
        with self._changed:
            for name in stake.ids:  # of an engine that has failed
                del self._owners[name]
            self._count_occupied()
            stake.ids.clear()
            ended, stake.ended = stake.ended, []
            return ended

    def begin_evaluation(self, stake: Stake) -> None:
        """From now to its end the call sees one version of the weights. New weights that wait for other evaluations come
        before this one, so that evaluations do not keep them waiting for ever."""
        with self._changed:
            self._changed.wait_for(lambda: stake.evaluates or stake.error is not None or not self._updates)
            stake.evaluates = True

    @contextmanager
    def updating(self) -> Iterator[None]:
        """New weights are taken inside, once no evaluation is under way. Raises RunError when the engine has been closed."""
        with self._changed:
            self._updates += 1
        try:
            with self._changed:
                self._changed.wait_for(lambda: self._closed is not None or not any(one.evaluates for one in self._stakes))
                if self._closed is not None:
                    raise self._closed
            yield
        finally:
            with self._changed:
                self._updates -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """End every call with RunError, and the engine."""
        with self._changed:
            self._closed = RunError("the engine is closed")
            self._fail(self._closed)
        with self._baton():
            self.engine.close()

    @contextmanager
    def _baton(self) -> Iterator[None]:
        """Nobody else drives the engine inside."""
        with self._changed:
            self._queueing += 1
            self._changed.wait_for(lambda: not self._driven)
            self._queueing -= 1
            self._driven = True
        try:
            yield
        finally:
            with self._changed:
                self._driven = False
                self._changed.notify_all()

    def _work(self, stake: Stake, timeout: float, all_of_it: bool = False) -> None:
        """Until something of a call has ended (or all of it), it has failed, or `timeout` seconds are over: drive the
        engine, unless another call does."""
        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                left = deadline - time.monotonic()
                if stake.error is not None or (not stake.ids if all_of_it else stake.ended) or left <= 0:
                    return
                if self._driven or self._queueing:
                    self._changed.wait(left)
                    continue
                self._driven = True
            self._drive(left)

    def _drive(self, timeout: float) -> None:
        ended: list[Completion] = []
        error: Exception | None = None
        try:
            ended = self._measured(timeout)
        except Exception as raised:  # every call is told, and raises it
            error = raised
        finally:
            with self._changed:
                self._driven = False
                self._hand_out(ended)
                if error is not None:
                    self._fail(error)
                self._changed.notify_all()

    def _measured(self, timeout: float) -> list[Completion]:
        active, before, began = min(len(self._owners), self.engine.capacity), self.engine.stats(), time.perf_counter()
        ended = self.engine.collect(timeout)
        after, seconds = self.engine.stats(), time.perf_counter() - began
        with self._changed:
            self._usage.add(active, after["steps"] - before["steps"], seconds,
                            int(after["prefill_tokens"] - before["prefill_tokens"]))
            self._usage.undriven[active] = self._usage.undriven.get(active, 0.0) + before["steps"] - self._steps
            self._steps = after["steps"]
        return ended

    def _hand_out(self, ended: Sequence[Completion]) -> None:
        for one in ended:
            stake = self._owners.pop(one.id, None)
            if stake is not None:  # else of a call that has ended with an error of the engine
                stake.ids.remove(one.id)
                stake.ended.append(one)
        self._count_occupied()

    def _count_occupied(self) -> None:
        now = time.perf_counter()
        if self._occupied_since is not None:
            self._usage.occupied += now - self._occupied_since
        self._occupied_since = now if self._owners else None

    def _fail(self, error: Exception) -> None:
        for stake in self._stakes:
            stake.error = stake.error or error
        self._changed.notify_all()

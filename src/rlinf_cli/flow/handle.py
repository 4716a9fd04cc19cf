"""Calls under way: waiting for them, and what to raise when one of them fails."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ray

from rlinf_cli.flow.answers import Answer, error_of
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import CallTimeoutError, ChannelBrokenError, ChannelError, WorkerDiedError, WorkerError
from rlinf_cli.flow.timeline import CLOCK, Call, CallTiming, waited_for

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group
    from rlinf_cli.flow.seat import Out, Seat

_SLICE_S = 0.2
"""How long to wait at once: Ctrl-C and deaths elsewhere are looked at in between."""
_SETTLE_S = 2.0
"""How long to look for the cause when a channel broke: it failed in another call, which may not be here yet."""
_NEARLY_AT_ONCE_S = 0.3
"""The same when a call failed by itself: a dead peer may be why."""
_DUMP_S = 2.0

Error = WorkerError | WorkerDiedError


class Handle:
    """One method call on some ranks of a group. Results, timings and memory are lists in the order of these ranks."""

    def __init__(self, group: Group, method: str, ranks: Sequence[int], refs: Sequence[Any],
                 outs: Sequence[Sequence[Out]]) -> None:
        self.group, self.method, self.ranks = group, method, tuple(ranks)
        self._refs, self._outs = list(refs), outs
        self._answers: list[Answer | Error | None] = [None] * len(refs)

    @property
    def role(self) -> str:
        return self.group.role

    def wait(self, timeout: float | None = None) -> list[Any]:
        """The results by rank. `timeout`: seconds, by default the cluster's call_timeout.

        Raises WorkerError, WorkerDiedError or CallTimeoutError as soon as one rank fails or the time is over; where
        this call only suffers from another one's failure, that one is raised. A call that timed out goes on: later
        calls of the group wait behind it, so end the run or the cluster.
        """
        gather([self], timeout)
        return [answer.value for answer in self._ended()]

    def done(self) -> bool:
        """Whether all ranks have answered or failed."""
        pending = [ref for ref, answer in zip(self._refs, self._answers, strict=True) if answer is None]
        return not pending or len(ray.wait(pending, num_returns=len(pending), timeout=0)[0]) == len(pending)

    def timings(self) -> list[CallTiming]:
        """Where each rank's time went, in this machine's `time.monotonic`. Waits, and raises, as `wait`."""
        gather([self])
        return [answer.timing for answer in self._ended()]

    def calls(self) -> list[Call]:
        """The same with who did it: first each rank's call, followed by those that it waited for itself."""
        return [one for place, timing in enumerate(self.timings()) for one in self._call(place, timing).everything()]

    def durations(self) -> list[float]:
        """Seconds each rank took."""
        return [timing.total for timing in self.timings()]

    def peak_memory(self) -> list[int]:
        """Bytes of main memory that each rank's process had needed at most when the call ended."""
        gather([self])
        return [answer.peak_memory for answer in self._ended()]

    def __repr__(self) -> str:
        return f"<{self.role}.{self.method} on {len(self.ranks)} rank{'s' * (len(self.ranks) != 1)}>"

    def pending(self) -> Iterator[tuple[Any, int]]:
        """The references not looked at yet, and their places."""
        return ((ref, place) for place, ref in enumerate(self._refs) if self._answers[place] is None)

    def failures(self) -> list[Error]:
        """What is known to have failed."""
        return [answer for answer in self._answers if isinstance(answer, Error)]

    def take(self, place: int) -> Error | None:
        """Look at an answer that is there; the failure, if it is one."""
        rank = self.ranks[place]
        seat = self.group.seats[rank]
        try:
            answer = Answer.unpack(ray.get(self._refs[place]))
        except ray.exceptions.RayError as error:
            is_dead = isinstance(error, ray.exceptions.RayActorError)
            reason = self.group.died(error, rank) if is_dead else _not_sent(error, seat, self.method)
            self._answers[place] = reason
            break_outs(self.outs(rank), reason)
        else:
            answer, failure = _in_our_time(answer, seat), answer.failure
            self._answers[place] = answer if failure is None else error_of(failure, seat.role, rank, seat.node)
            waited_for(self._call(place, answer.timing))
        taken = self._answers[place]
        return taken if isinstance(taken, Error) else None

    def is_open(self, rank: int) -> bool:
        """Whether the rank has not answered; for one that is dead: whether it never did."""
        if rank not in self.ranks:
            return False
        place = self.ranks.index(rank)
        answer, ref = self._answers[place], self._refs[place]
        if answer is not None:
            return isinstance(answer, WorkerDiedError)
        if not ray.wait([ref], timeout=0)[0]:
            return True
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError:
            return True
        except ray.exceptions.RayError:
            return False
        return False

    def outs(self, rank: int) -> Sequence[Out]:
        """The channels that the call puts into on a rank."""
        return self._outs[self.ranks.index(rank)]

    def _call(self, place: int, timing: CallTiming) -> Call:
        spec = self.group.methods.get(self.method)
        return Call(self.role, self.ranks[place], self.method, timing, spec is not None and (spec.control or spec.concurrent))

    def _ended(self) -> Iterator[Answer]:
        for answer in self._answers:
            assert isinstance(answer, Answer)
            yield answer


def gather(handles: Iterable[Handle], timeout: float | None = None) -> None:
    """Wait for all calls. Raises the failure that the others follow from, without waiting for calls that go on.

    A rank that dies is told of here, whether or not one of these calls runs on it.
    """
    calls = list(handles)
    if calls:
        limit = max(call.group.call_timeout for call in calls) if timeout is None else timeout
        _Gathering(calls, limit).run()
        for call in calls:
            call.group.forget(call)


class _Gathering:
    def __init__(self, calls: Sequence[Handle], limit: float) -> None:
        self._calls, self._limit = calls, limit
        self._watches = {id(call.group.watch): call.group.watch for call in calls if call.group.watch is not None}
        self._deadline = time.monotonic() + limit
        self._settled: float | None = None
        self._failures: list[Error] = [error for call in calls for error in call.failures()]
        self._pending = {ref: (call, place) for call in calls for ref, place in call.pending()}

    def run(self) -> None:
        while self._pending or self._failures:
            self._look(min(_SLICE_S, self._deadline - time.monotonic()))
            self._failures.extend(death for watch in self._watches.values() for death in watch.take_news())
            if self._failures and self._is_settled():
                self._raise()
            if self._pending and not self._failures and time.monotonic() >= self._deadline:
                raise timed_out(self._calls, self._limit)

    def _look(self, patience: float) -> None:
        """Take the answers that are there, or come in time."""
        waiting = list(self._pending)
        if not waiting:
            time.sleep(_SLICE_S / 10)
            return
        ready, rest = ray.wait(waiting, num_returns=1, timeout=max(0.0, patience))
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for ref in ready:
            call, place = self._pending.pop(ref)
            failure = call.take(place)
            if failure is not None:
                self._failures.append(failure)

    def _is_settled(self) -> bool:
        """Whether no better explanation needs to be waited for."""
        gravest = max(map(gravity, self._failures))
        patience = {2: 0.0, 1: _NEARLY_AT_ONCE_S, 0: _SETTLE_S}[gravest]
        if not self._watches and not self._pending:
            patience = 0.0
        self._settled = self._settled or time.monotonic()
        return time.monotonic() - self._settled >= patience

    def _raise(self) -> None:
        worst = max(self._failures, key=gravity)  # the first of the gravest
        if gravity(worst) == 0:
            # the death that broke the channel may have been raised before, to somebody else
            worst = next((death for watch in self._watches.values() if (death := watch.latest())), worst)
        if isinstance(worst, WorkerError):
            raise worst from worst.cause
        for watch in self._watches.values():
            watch.tell()
        raise worst


def gravity(error: BaseException) -> int:
    """2: a process died; 1: a call failed by itself; 0: a channel broke, which something else caused."""
    while isinstance(error, WorkerError) and error.cause is not None:
        error = error.cause
    return 2 if isinstance(error, WorkerDiedError) else 0 if isinstance(error, ChannelBrokenError) else 1


def timed_out(calls: Sequence[Handle], limit: float) -> CallTimeoutError:
    """Name the ranks that have not answered, and have their stacks written."""
    lines, dumps = [], []
    for call in calls:
        ranks = [call.ranks[place] for _, place in call.pending()]
        if ranks:
            where = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))} of {call.group.size}"
            lines.append(f"{call.role}.{call.method} ({where})")
            dumps += [call.group.dump_stacks(rank, f"{call.method} has not ended within {limit:g} s") for rank in ranks]
    written, _ = ray.wait(dumps, num_returns=len(dumps), timeout=_DUMP_S)
    return CallTimeoutError(f"not ended within {limit:g} s: {'; '.join(lines)}. {_stacks(written)}")


def _stacks(written: Iterable[Any]) -> str:
    paths = []
    for dump in written:
        with contextlib.suppress(ray.exceptions.RayError):  # it has just died
            paths.append(ray.get(dump))
    return f"Where they are: {', '.join(dict.fromkeys(paths))}" if paths else "They did not say where they are"


def break_outs(outs: Iterable[Out], reason: Error) -> None:
    """What a rank could not tell its channels itself."""
    for channel, producer in outs:
        with contextlib.suppress(ChannelError):  # broken or dropped before
            Channel(channel).done(producer, str(reason))


def _in_our_time(answer: Answer, seat: Seat) -> Answer:
    """Other machines have other clocks."""
    if seat.node == client().node:
        return answer
    return replace(answer, timing=answer.timing.shifted(answer.clock - CLOCK))


def _not_sent(error: Exception, seat: Seat, method: str) -> WorkerError:
    """The host answers for all that a method does: what is left is that something could not be pickled or unpickled."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    if "input arguments" in text:
        what = "its arguments could not be read in its process"
    elif isinstance(error, ray.exceptions.RayTaskError):
        what = "its result cannot be sent to another process"
    else:
        what = "its result could not be read"
    cause = getattr(error, "cause", None)
    return WorkerError(seat.role, seat.rank, seat.node, method, f"{what}: {text.splitlines()[-1]}", text, cause)

"""Calls under way: waiting for them, and what to raise when one of them fails."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ray

from rlinf_cli.errors import RunError
from rlinf_cli.flow.answers import Answer, error_of
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import CallTimeoutError, ChannelBrokenError, ChannelError, WorkerDiedError, WorkerError
from rlinf_cli.flow.timeline import CLOCK, Call, CallTiming, Switch, waited_for

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


@dataclass(slots=True, eq=False)
class Place:
    """A call on one of its ranks."""

    rank: int
    ref: Any
    """Of Ray's; None while the rank is being started again, as the call is sent then."""
    outs: Sequence[Out] = ()
    """The channels that the call puts into on this rank."""
    send: Callable[[], Any] | None = None
    """Sends the call to whatever process the rank has now; None where the call ends with the rank's process."""
    answer: Answer | Error | None = None
    dropped: bool = False
    """The group goes on without the rank."""

    @property
    def settled(self) -> bool:
        return self.dropped or self.answer is not None

    def is_ready(self) -> bool:
        return self.ref is not None and bool(ray.wait([self.ref], timeout=0)[0])


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a call was given to be joined to others by: names of channels, by the way items flow, and roles of groups."""

    ins: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


class Handle:
    """One method call on some ranks of a group. Results, timings and memory are lists in the order of these ranks, without
    those that the group has lost since."""

    def __init__(self, group: Group, method: str, places: Sequence[Place], wiring: Wiring = Wiring()) -> None:
        self.group, self.method, self.wiring = group, method, wiring
        self._places = tuple(places)
        self._lock = threading.Lock()

    @property
    def role(self) -> str:
        return self.group.role

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(place.rank for place in self._places)

    def wait(self, timeout: float | None = None) -> list[Any]:
        """The results by rank. `timeout`: seconds, by default the cluster's call_timeout.

        Raises WorkerError, WorkerDiedError or CallTimeoutError as soon as one rank fails or the time is over; where
        this call only suffers from another one's failure, that one is raised. A call that timed out goes on: later
        calls of the group wait behind it, so end the run or the cluster.
        """
        gather([self], timeout)
        return [answer.value for _, answer in self._answers()]

    def done(self) -> bool:
        """Whether all ranks have answered or failed."""
        for place in self._places:
            if place.send is not None and place.is_ready():
                self.take(place)  # what looks like an end may be a death after which the call is sent again
        return all(place.settled or place.is_ready() for place in self._places)

    def succeeded(self) -> bool:
        """Whether all ranks have answered by now, and none has failed. A failure that is seen is raised by the next
        `gather`."""
        self.answered()
        return all(place.dropped or isinstance(place.answer, Answer) for place in self._places)

    def timings(self) -> list[CallTiming]:
        """Where each rank's time went, in this machine's `time.monotonic`. Waits, and raises, as `wait`."""
        gather([self])
        return [answer.timing for _, answer in self._answers()]

    def calls(self) -> list[Call]:
        """The same with who did it: first each rank's call, followed by those that it waited for itself."""
        gather([self])
        return self._calls()

    def answered(self) -> list[Call]:
        """As `calls`, of the ranks that have answered by now. A failure that is seen is raised by the next `gather`."""
        for place in self.unsettled():
            if place.is_ready():
                self.take(place)
        return self._calls()

    def durations(self) -> list[float]:
        """Seconds each rank took."""
        return [timing.total for timing in self.timings()]

    def peak_memory(self) -> list[int]:
        """Bytes of main memory that each rank's process had needed at most when the call ended."""
        gather([self])
        return [answer.peak_memory for _, answer in self._answers()]

    def device_memory(self) -> list[int]:
        """Bytes of its first device that each rank's process had reserved at most when the call ended; 0 on a processor."""
        gather([self])
        return [answer.device_memory for _, answer in self._answers()]

    def switches(self) -> list[tuple[Switch, ...]]:
        """What each rank's worker moved to and off its devices between the answer before, of a call that takes a turn on them,
        and this one."""
        gather([self])
        return [answer.switches for _, answer in self._answers()]

    def __repr__(self) -> str:
        return f"<{self.role}.{self.method} on {len(self._places)} rank{'s' * (len(self._places) != 1)}>"

    # ---- for gathering and for the group ----

    def unsettled(self) -> list[Place]:
        """Where nothing is known of the outcome yet."""
        return [place for place in self._places if not place.settled]

    def failures(self) -> list[Error]:
        """What is known to have failed."""
        return [place.answer for place in self._places if isinstance(place.answer, Error)]

    def take(self, place: Place) -> Error | None:
        """Look at an answer that is there; the failure, if it is one. After a death after which the call is sent again the
        place remains unsettled."""
        ref = place.ref
        if not place.settled and ref is not None:
            outcome = self._outcome(place, ref)
            with self._lock:
                is_news = place.ref is ref and not place.settled
                if is_news:
                    place.ref, place.answer = (None, None) if outcome is None else (ref, outcome)
            if is_news and isinstance(outcome, Answer):
                waited_for(self._call(place, outcome.timing))
            if is_news and outcome is not None:
                place.send = None
                self.group.answered += 1
        return place.answer if isinstance(place.answer, Error) else None

    def is_open(self, rank: int) -> bool:
        """Whether the rank has not answered; for one that is dead: whether it never did."""
        place = self._at(rank)
        if place is None or place.dropped:
            return False
        if place.answer is not None:
            return isinstance(place.answer, WorkerDiedError)
        ref = place.ref
        if ref is None or not ray.wait([ref], timeout=0)[0]:
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
        place = self._at(rank)
        return () if place is None else place.outs

    def send_again(self, rank: int) -> None:
        """The rank, which was dead, has a new process: what it has not answered begins anew there."""
        for place in self._open_after_death(rank):
            if place.send is not None:
                place.ref = place.send()

    def drop(self, rank: int) -> None:
        """The rank is dead and has no successor: what it has not answered is left to the others."""
        for place in self._open_after_death(rank):
            with self._lock:
                place.dropped = True
            for channel, producer in place.outs:
                with contextlib.suppress(ChannelError):  # broken or dropped before
                    Channel(channel).done(producer)

    def fail(self, rank: int, error: Error) -> None:
        """The rank is dead and will not come back: what it has not answered has failed."""
        for place in self._open_after_death(rank):
            with self._lock:
                place.answer = error
            break_outs(place.outs, error)

    def _open_after_death(self, rank: int) -> Iterator[Place]:
        place = self._at(rank)
        if place is None or place.settled:
            return
        if place.ref is not None and ray.wait([place.ref], timeout=_SETTLE_S)[0]:
            self.take(place)  # it may have answered before
        if not place.settled:
            yield place

    def _outcome(self, place: Place, ref: Any) -> Answer | Error | None:
        """None: the call is to be sent again."""
        seat = self.group.seats[place.rank]
        try:
            answer = Answer.unpack(ray.get(ref))
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError) as error:
            if place.send is not None and self.group.comes_back(place.rank):
                return None
            outcome: Error = self.group.died(error, place.rank)
        except ray.exceptions.RayError as error:
            outcome = _not_sent(error, seat, self.method)
        else:
            if answer.failure is None:
                return _in_our_time(answer, seat)
            waited_for(self._call(place, _in_our_time(answer, seat).timing))
            return error_of(answer.failure, seat.role, seat.rank, seat.node)
        break_outs(place.outs, outcome)
        return outcome

    def _at(self, rank: int) -> Place | None:
        return next((place for place in self._places if place.rank == rank), None)

    def _call(self, place: Place, timing: CallTiming) -> Call:
        spec = self.group.methods.get(self.method)
        return Call(self.role, place.rank, self.method, timing, spec is not None and spec.control)

    def _calls(self) -> list[Call]:
        return [one for place, answer in self._answers() for one in self._call(place, answer.timing).everything()]

    def _answers(self) -> Iterator[tuple[Place, Answer]]:
        return ((place, place.answer) for place in self._places if isinstance(place.answer, Answer))


def gather(handles: Iterable[Handle], timeout: float | None = None, beside: Iterable[Handle] = ()) -> None:
    """Wait for all calls. Raises the failure that the others follow from, without waiting for calls that go on.

    A rank that dies is told of here, whether or not one of these calls runs on it; and so is the failure of a call of
    `beside`, of which none is waited for.
    """
    calls = list(handles)
    if calls:
        limit = max(call.group.call_timeout for call in calls) if timeout is None else timeout
        _Gathering(calls, limit, list(beside)).run()
        for call in calls:
            call.group.forget(call)


class _Gathering:
    def __init__(self, calls: Sequence[Handle], limit: float, beside: Sequence[Handle]) -> None:
        self._calls, self._limit = calls, limit
        every = [*calls, *beside]
        self._watches = {id(call.group.watch): call.group.watch for call in every if call.group.watch is not None}
        self._deadline = time.monotonic() + limit
        self._settled: float | None = None
        self._failures: list[Error] = [error for call in every for error in call.failures()]
        self._open = {id(place): (call, place) for call in calls for place in call.unsettled()}
        self._beside = {id(place): (call, place) for call in beside for place in call.unsettled()
                        if id(place) not in self._open}

    def run(self) -> None:
        while self._open or self._failures:
            self._look(min(_SLICE_S, self._deadline - time.monotonic()))
            self._failures.extend(death for watch in self._watches.values() for death in watch.take_news())
            if self._failures and self._is_settled():
                self._raise()
            if self._open and not self._failures and time.monotonic() >= self._deadline:
                raise timed_out(self._calls, self._limit)
            if any(watch.is_stopping for watch in self._watches.values()):
                raise RunError("the cluster has been shut down")

    def _look(self, patience: float) -> None:
        """Take the answers that are there, or come in time."""
        every = self._open | self._beside
        waiting = {place.ref: number for number, (_, place) in every.items() if place.ref is not None}
        if not self._open or not waiting:
            time.sleep(_SLICE_S / 10)
        else:
            ready, rest = ray.wait(list(waiting), num_returns=1, timeout=max(0.0, patience))
            if ready and rest:
                ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
            for ref in ready:
                call, place = every[waiting[ref]]
                if place.ref == ref:  # or it is under way anew
                    call.take(place)
        for number, (_, place) in every.items():
            if place.settled:
                self._open.pop(number, None)
                self._beside.pop(number, None)
                if isinstance(place.answer, Error):
                    self._failures.append(place.answer)

    def _is_settled(self) -> bool:
        """Whether no better explanation needs to be waited for."""
        gravest = max(map(gravity, self._failures))
        patience = {2: 0.0, 1: _NEARLY_AT_ONCE_S, 0: _SETTLE_S}[gravest]
        if not self._watches and not self._open:
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
        ranks = [place.rank for place in call.unsettled()]
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

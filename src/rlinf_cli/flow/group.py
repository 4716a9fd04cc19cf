"""The ranks of one role, called as one."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ray import cloudpickle

from rlinf_cli.errors import did_you_mean
from rlinf_cli.flow.answers import pack_call
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import SerializationError, WorkerDiedError
from rlinf_cli.flow.handle import Handle, gather
from rlinf_cli.flow.host import queue_of
from rlinf_cli.flow.seat import Out, Seat
from rlinf_cli.flow.watch import Watch, reason_of
from rlinf_cli.flow.worker import MethodSpec

_calls = itertools.count(1)
_KEPT = 64
"""Calls that nobody waits for are remembered up to this number; then those that have ended are forgotten."""


class Group:
    """Every public method of the worker can be called here, and runs on all ranks: `group.method(...) -> Handle`.

    A group can be an argument of another group's methods: calls from a worker go straight to the ranks.
    """

    def __init__(self, role: str, seats: Sequence[Seat], actors: Sequence[Any], methods: Mapping[str, MethodSpec],
                 call_timeout: float, watch: Watch | None = None, tenant: int = 0) -> None:
        self.role, self.seats, self.actors = role, tuple(seats), tuple(actors)
        self.methods, self.call_timeout, self.watch = methods, call_timeout, watch
        self.tenant = tenant
        """Its number in its process: 0, but for roles that share the process of another one."""
        self.on_call: Callable[[Handle], None] | None = None
        """Called with the handle of every call issued here."""
        self._built: Handle | None = None
        self._start_timeout = call_timeout
        self._calls: list[Handle] = []
        self._latest = ""
        self._lock = threading.Lock()
        for name in methods:
            if name in vars(self) or hasattr(Group, name):
                raise TypeError(f"{role}: groups have '{name}' themselves, so no method of a worker can be called so")

    @property
    def size(self) -> int:
        return len(self.seats)

    def ready(self, timeout: float | None = None) -> None:
        """Wait until every rank's worker is there; by default as long as the cluster's start_timeout.

        Raises as `Handle.wait`.
        """
        if self._built is not None:
            gather([self._built], self._start_timeout if timeout is None else timeout)

    def on(self, rank: int) -> Ranks:
        """One rank, called in the same way."""
        if not 0 <= rank < self.size:
            raise IndexError(f"{self.role} has ranks 0 to {self.size - 1}, not {rank}")
        return Ranks(self, (rank,))

    def __getattr__(self, name: str) -> Callable[..., Handle]:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(Ranks(self, range(self.size)), name)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Group({self.role!r}, {self.size})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Group, (self.role, self.seats, self.actors, self.methods, self.call_timeout, None, self.tenant)

    # ---- for the cluster and for handles ----

    def building(self, refs: Sequence[Any], timeout: float) -> None:
        """The calls that make the workers are under way, and may take so long."""
        self._start_timeout = timeout
        self._built = Handle(self, "__init__", range(self.size), refs, [()] * self.size)
        self._remember(self._built)

    def submit(self, spec: MethodSpec, ranks: Sequence[int], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Handle:
        """Call a method on some ranks. Raises SerializationError when an argument cannot be sent, TypeError when the
        arguments do not fit."""
        name = f"{self.role}.{spec.name}"
        try:
            bound = spec.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        outs = [_channel(name, out, bound.arguments[out]) for out in spec.outs if bound.arguments.get(out) is not None]
        producers = self._declare(outs, ranks)
        ticket = self._ticket(spec, bound.arguments)
        try:
            refs = [self._send(spec, rank, args, kwargs, mine, ticket) for rank, mine in zip(ranks, producers, strict=True)]
        except TypeError as error:
            refusal = _not_sent(name, bound.arguments, error)
            for channel, producer in itertools.chain.from_iterable(producers):
                Channel(channel).done(producer, str(refusal))
            raise refusal from error
        handle = Handle(self, spec.name, ranks, refs, producers)
        self._remember(handle)
        if self.on_call is not None:
            self.on_call(handle)
        return handle

    def forget(self, handle: Handle) -> None:
        """All ranks have answered."""
        with self._lock, contextlib.suppress(ValueError):  # forgotten before
            self._calls.remove(handle)

    def died(self, told: BaseException, rank: int) -> WorkerDiedError:
        """The error for a rank that Ray says is dead."""
        return self.death(rank, reason_of(told)) if self.watch is None else self.watch.death(self, rank, told)

    def death(self, rank: int, reason: str, pid: int = 0) -> WorkerDiedError:
        seat = self.seats[rank]
        return WorkerDiedError(self.role, rank, seat.node, self._last_call(rank), reason, pid, str(seat.log))

    def open_outs(self, rank: int) -> Iterator[Out]:
        """The channels that a dead rank's calls were still to put into."""
        for call in self._remembered():
            if call.is_open(rank):
                yield from call.outs(rank)

    def dump_stacks(self, rank: int, reason: str) -> Any:
        return self.actors[rank].dump_stacks.options(concurrency_group="host").remote(reason)

    def is_idle(self, rank: int) -> bool:
        """Whether nothing issued here is still under way on a rank."""
        return not any(call.is_open(rank) for call in self._remembered())

    def _send(self, spec: MethodSpec, rank: int, args: tuple[Any, ...], kwargs: Mapping[str, Any], outs: Sequence[Out],
              ticket: int) -> Any:
        host, packed = self.actors[rank], pack_call(spec.name, args, kwargs, outs, ticket)
        if spec.control or spec.concurrent:
            queue = "control" if spec.control else "stream"
            return host.beside.options(concurrency_group=queue).remote(self.role, packed)
        queue = queue_of(self.tenant)
        call = host.call.options(concurrency_group=queue) if queue else host.call
        return call.remote(self.role, packed)

    def _ticket(self, spec: MethodSpec, arguments: Mapping[str, Any]) -> int:
        """The number of the turn on the devices that a call needs; 0 where it needs none."""
        return 0

    def _last_call(self, rank: int) -> str:
        current = next((call.method for call in self._remembered() if call.is_open(rank)), None)
        return current or (f"no call, the last was {self._latest}" if self._latest else "no call")

    def _declare(self, outs: Sequence[Channel], ranks: Sequence[int]) -> list[list[Out]]:
        """Tell each channel who puts into it: this call, once a rank."""
        if not outs:
            return [[] for _ in ranks]
        number = f"{client().id}.{next(_calls)}"
        producers = [f"{self.role}[{rank}]#{number}" for rank in ranks]
        for channel in outs:
            channel.declare(producers)
        return [[(channel.name, producer) for channel in outs] for producer in producers]

    def _remember(self, handle: Handle) -> None:
        with self._lock:
            if len(self._calls) >= _KEPT:
                self._calls = [call for call in self._calls if not call.done()]
            self._calls.append(handle)
            self._latest = handle.method

    def _remembered(self) -> list[Handle]:
        with self._lock:
            return list(self._calls)


class Ranks:
    """Some ranks of a group."""

    def __init__(self, group: Group, ranks: Sequence[int]) -> None:
        self._group, self._ranks = group, ranks

    def __getattr__(self, name: str) -> Callable[..., Handle]:
        spec = self._group.methods.get(name)
        if spec is None:
            raise AttributeError(f"{self._group.role} has no method '{name}'{did_you_mean(name, self._group.methods)}")
        return lambda *args, **kwargs: self._group.submit(spec, self._ranks, args, kwargs)


def _channel(method: str, argument: str, value: Any) -> Channel:
    if not isinstance(value, Channel):
        raise TypeError(f"{method}(): '{argument}' puts into a channel, and {type(value).__name__} is none")
    return value


def _not_sent(method: str, arguments: Mapping[str, Any], error: TypeError) -> SerializationError:
    reasons = ((name, _why_not_sent(value)) for name, value in arguments.items())
    culprit, reason = next(((f"argument '{name}'", why) for name, why in reasons if why), ("an argument", str(error)))
    return SerializationError(f"{method}(): {culprit} cannot be sent to another process: {reason}")


def _why_not_sent(value: Any) -> str:
    try:
        cloudpickle.dumps(value)
    except Exception as error:  # pickling runs the value's own code
        return f"{type(error).__name__}: {error}"
    return ""

"""The ranks of one role, called as one."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ray
from ray import cloudpickle

from rlinf_cli.errors import did_you_mean
from rlinf_cli.flow.answers import pack_call
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import SerializationError, WorkerDiedError
from rlinf_cli.flow.handle import Error, Handle, Place, Wiring, gather
from rlinf_cli.flow.host import control_of, queue_of
from rlinf_cli.flow.seat import Out, Seat
from rlinf_cli.flow.tickets import Tickets, channel_names
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
                 call_timeout: float, watch: Watch | None = None, tenant: int = 0, restartable: bool = False,
                 retired: frozenset[int] = frozenset()) -> None:
        self.role, self.seats, self.actors = role, tuple(seats), tuple(actors)
        self.methods, self.call_timeout, self.watch = methods, call_timeout, watch
        self.tenant = tenant
        """Its number in its process: 0, but for roles that share the process of another one."""
        self.restartable = restartable
        """Whether ranks that die are started again, and what they had not answered begins anew then."""
        self.answered = 0
        """Calls that have ended, counted by rank as they are looked at."""
        self._retired = retired
        self._held: set[int] = set()
        """Ranks that are being started again: ordinary calls are sent to them afterwards."""
        self._lost: dict[int, Error] = {}
        """Ranks that are not started again any more."""
        self.tickets: Tickets | None = None
        """Where turns on devices are asked for, in the driver."""
        self.on_call: Callable[[Handle], None] | None = None
        """Called with the handle of every call issued here."""
        self._built: Handle | None = None
        self._start_timeout = call_timeout
        self._calls: list[Handle] = []
        self._latest = ""
        self._lock = threading.Lock()
        self._sending = threading.RLock()
        """Calls are sent, and sent again, in one order."""
        for name in methods:
            if name in vars(self) or hasattr(Group, name):
                raise TypeError(f"{role}: groups have '{name}' themselves, so no method of a worker can be called so")

    @property
    def size(self) -> int:
        """Ranks that it was launched with; their numbers stay."""
        return len(self.seats)

    @property
    def alive(self) -> tuple[int, ...]:
        """The ranks that calls go to: all, but for those whose node is gone and that the others go on without."""
        return tuple(rank for rank in range(self.size) if rank not in self._retired)

    @property
    def present(self) -> tuple[int, ...]:
        """Those of them that have a process now, which is not being started again."""
        return tuple(rank for rank in self.alive if rank not in self._held)

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
        return Group, (self.role, self.seats, self.actors, self.methods, self.call_timeout, None, self.tenant,
                       self.restartable, self._retired)

    # ---- for the cluster and for handles ----

    def building(self, timeout: float) -> None:
        """Have the workers made, which may take so long."""
        self._start_timeout = timeout
        self._built = Handle(self, "__init__", [self._building(rank) for rank in range(self.size)])
        self._remember(self._built)

    def build_rank(self, rank: int) -> Any:
        """Have a rank's worker made; the reference of the answer."""
        return self.actors[rank].build.options(**self._queue()).remote(self.role)

    def submit(self, spec: MethodSpec, ranks: Sequence[int], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Handle:
        """Call a method on some ranks. Raises SerializationError when an argument cannot be sent, TypeError when the
        arguments do not fit."""
        name = f"{self.role}.{spec.name}"
        try:
            bound = spec.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{name}(): {error}") from None
        outs = [_channel(name, out, bound.arguments[out]) for out in spec.outs if bound.arguments.get(out) is not None]
        with self._sending:
            ranks = [rank for rank in ranks if rank not in self._retired]
            with self._turn(spec, ranks, bound.arguments) as ticket:
                producers = self._declare(outs, ranks)
                try:
                    places = [self._place(spec, rank, pack_call(spec.name, args, kwargs, mine, ticket), mine)
                              for rank, mine in zip(ranks, producers, strict=True)]
                except TypeError as error:
                    refusal = _not_sent(name, bound.arguments, error)
                    for channel, producer in itertools.chain.from_iterable(producers):
                        Channel(channel).done(producer, str(refusal))
                    raise refusal from error
            handle = Handle(self, spec.name, places, _wiring(spec, bound.arguments))
            self._remember(handle)
        if self.on_call is not None:
            self.on_call(handle)
        return handle

    def forget(self, handle: Handle) -> None:
        """All ranks have answered."""
        with self._lock, contextlib.suppress(ValueError):  # forgotten before
            self._calls.remove(handle)

    def died(self, told: BaseException, rank: int) -> Error:
        """The error for a rank that Ray says is dead."""
        if rank in self._lost:
            return self._lost[rank]
        if self.watch is None or self.restartable:
            return self.death(rank, reason_of(told))
        return self.watch.death(self, rank, told)

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

    # ---- ranks that come and go ----

    def comes_back(self, rank: int) -> bool:
        """Whether what a dead rank has not answered is sent again, or left to the others."""
        return self.restartable and rank not in self._lost

    def hold_rank(self, rank: int) -> None:
        """The rank is dead; `reseat_rank` and `resend_rank`, `retire_rank` or `lose_rank` follow."""
        with self._sending:
            self._held.add(rank)

    def reseat_rank(self, rank: int, seat: Seat, actor: Any) -> None:
        """From now on this process is the rank, but ordinary calls are held back."""
        with self._sending:
            self.seats = (*self.seats[:rank], seat, *self.seats[rank + 1 :])
            self.actors = (*self.actors[:rank], actor, *self.actors[rank + 1 :])
            if self.tickets is not None:
                self.tickets.enrol(self)  # its devices may be others

    def resend_rank(self, rank: int) -> None:
        """The rank works again: send what it has not answered, in order."""
        with self._sending:
            for call in self._remembered():
                call.send_again(rank)
            self._held.discard(rank)

    def retire_rank(self, rank: int) -> None:
        """Go on without the rank: its calls are left to the others."""
        with self._sending:
            self._retired |= {rank}
            self.leave_turns(rank)
            for call in self._remembered():
                call.drop(rank)

    def lose_rank(self, rank: int, error: Error) -> None:
        """The rank does not come back: its calls fail, and so do those to come."""
        with self._sending:
            self._lost[rank] = error
            self._held.discard(rank)
            self.leave_turns(rank)
            for call in self._remembered():
                call.fail(rank, error)

    def leave_turns(self, rank: int) -> None:
        """The rank is dead: others need not wait until it has had its turns on devices that they share."""
        if self.tickets is not None:
            self.tickets.retire(self.role, rank)

    @property
    def call_counts(self) -> tuple[int, int]:
        """Changes when something was called here or has answered."""
        calls = self._remembered()
        return self.answered, sum(call.done() for call in calls) - len(calls)

    def open_calls(self) -> list[str]:
        """What is under way, in words."""
        return [f"{self.role}.{call.method}" for call in self._remembered() if any(map(call.is_open, call.ranks))]

    # ---- sending ----

    def _place(self, spec: MethodSpec, rank: int, packed: list[Any], outs: Sequence[Out]) -> Place:
        send = functools.partial(self._send, spec, rank, packed)
        is_held = rank in self._held and not spec.control
        return Place(rank, None if is_held else send(), outs, send if self.restartable and not spec.control else None)

    def _building(self, rank: int) -> Place:
        return Place(rank, self.build_rank(rank), send=functools.partial(self.build_rank, rank) if self.restartable else None)

    def _send(self, spec: MethodSpec, rank: int, packed: list[Any]) -> Any:
        host = self._host(rank)
        if spec.control or spec.concurrent:
            queue = control_of(self.tenant) if spec.control else "stream"
            return host.beside.options(concurrency_group=queue).remote(self.role, packed)
        return host.call.options(**self._queue()).remote(self.role, packed)

    def _host(self, rank: int) -> Any:
        """The rank's process. A worker's copy of this group does not hear of new ones, and asks."""
        if self.watch is None and self.restartable:
            with contextlib.suppress(ValueError):  # it is dead, and there is no new one yet
                return ray.get_actor(self.seats[rank].actor_name)
        return self.actors[rank]

    def _queue(self) -> dict[str, str]:
        """Ray's options for the ordinary calls."""
        queue = queue_of(self.tenant)
        return {"concurrency_group": queue} if queue else {}

    def _turn(self, spec: MethodSpec, ranks: Sequence[int],
              arguments: Mapping[str, Any]) -> contextlib.AbstractContextManager[int]:
        """The ticket of the turn on the devices that a call needs, for as long as it is sent; 0 where it needs none. Calls
        from inside a worker never take one: they run in the turn of their caller."""
        return contextlib.nullcontext(0) if self.tickets is None else self.tickets.issued(self.role, spec, ranks, arguments)

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
            channel.declare(producers, guarded=self.restartable)
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

    def __reduce__(self) -> tuple[Any, ...]:
        return Ranks, (self._group, self._ranks)

    def __getattr__(self, name: str) -> Callable[..., Handle]:
        spec = self._group.methods.get(name)
        if spec is None:
            raise AttributeError(f"{self._group.role} has no method '{name}'{did_you_mean(name, self._group.methods)}")
        return lambda *args, **kwargs: self._group.submit(spec, self._ranks, args, kwargs)


def ranks_of(targets: Group | Ranks) -> tuple[Group, Sequence[int]]:
    """The group, and which of its ranks are meant."""
    return (targets, range(targets.size)) if isinstance(targets, Group) else (targets._group, targets._ranks)


def _wiring(spec: MethodSpec, arguments: Mapping[str, Any]) -> Wiring:
    targets = (ranks_of(value)[0].role for value in arguments.values() if isinstance(value, (Group, Ranks)))
    return Wiring(channel_names(spec.ins, arguments), channel_names(spec.outs, arguments), tuple(targets))


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

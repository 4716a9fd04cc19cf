"""What a rank sends back for a call, and what is made of it where the call was issued."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.errors import RlinfError, RunError
from rlinf_cli.flow.errors import WorkerError
from rlinf_cli.flow.timeline import CLOCK, CallTiming, Switch


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception, in a form that can always be sent."""

    method: str
    summary: str
    traceback: str
    cause: bytes | None
    """The exception itself, pickled, where that is possible."""
    exit_code: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a call on one rank."""

    value: Any = None
    failure: Failure | None = None
    timing: CallTiming = field(default_factory=CallTiming)
    peak_memory: int = 0
    """Bytes of main memory that the process has needed at most so far."""
    clock: float = CLOCK
    """The rank's `timeline.CLOCK`."""
    switches: tuple[Switch, ...] = ()
    """What its worker moved to and off its devices since the answer before."""
    device_memory: int = 0
    """Bytes of its first device that the process has reserved at most so far; 0 where it runs on a processor."""

    def pack(self) -> list[Any]:
        """As it is sent: Ray passes plain lists and numbers without pickling, which is a good part of a call's time."""
        value = None if self.value is None else (self.value,)
        return [value, self.failure, self.timing.pack(), self.peak_memory, self.clock,
                [switch.pack() for switch in self.switches], self.device_memory]

    @classmethod
    def unpack(cls, sent: Sequence[Any]) -> Answer:
        value, failure, timing, peak_memory, clock, switches, device_memory = sent
        return cls(None if value is None else value[0], failure, CallTiming.unpack(timing), peak_memory, clock,
                   tuple(Switch(*switch) for switch in switches), device_memory)


def pack_call(method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], outs: Sequence[Sequence[str]],
              ticket: int = 0) -> list[Any]:
    """A call as it is sent. `ticket`: of the turn on the devices that it needs; 0: none."""
    return [method, (args, dict(kwargs)) if args or kwargs else None, [list(out) for out in outs], ticket]


def unpack_call(sent: Sequence[Any]) -> tuple[str, tuple[Any, ...], dict[str, Any], list[list[str]], int]:
    method, arguments, outs, ticket = sent
    args, kwargs = arguments or ((), {})
    return method, args, kwargs, outs, ticket


def failure_of(error: BaseException, method: str) -> Failure:
    summary = str(error) if isinstance(error, RlinfError) else f"{type(error).__name__}: {error}".removesuffix(": ")
    code = error.exit_code if isinstance(error, RlinfError) else RunError.exit_code
    return Failure(method, summary, "".join(traceback.format_exception(error)), _pickled(error), code)


def error_of(failure: Failure, role: str, rank: int, node: str) -> WorkerError:
    return WorkerError(role, rank, node, failure.method, failure.summary, failure.traceback, _cause(failure),
                       failure.exit_code)


def _pickled(error: BaseException) -> bytes | None:
    from ray import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(pickled)
    except Exception:  # whatever a user's exception class does: its text is sent anyway
        return None
    return pickled


def _cause(failure: Failure) -> BaseException | None:
    from ray import cloudpickle

    if failure.cause is None:
        return None
    try:
        cause: BaseException = cloudpickle.loads(failure.cause)
    except Exception:  # its class cannot be imported here
        return None
    return cause

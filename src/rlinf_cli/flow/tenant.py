"""A worker in the process that it lives in: how it is made, how its calls run, and what is told of their outcome."""

from __future__ import annotations

import contextlib
import logging
import resource
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from ray import cloudpickle

from rlinf_cli.flow import timeline
from rlinf_cli.flow.answers import Answer, Failure, failure_of, unpack_call
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import client
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.seat import Out, Plan, Seat
from rlinf_cli.flow.turns import Turns
from rlinf_cli.flow.worker import Worker

log = logging.getLogger(__name__)


class Tenant:
    """One role's worker. Ordinary calls and the worker's constructor run in one thread, others beside it."""

    def __init__(self, seat: Seat, before: Tenant | None = None) -> None:
        """`before`: the tenant whose worker is made first. One is made after another, on all ranks in the same order: what a
        constructor imports and seeds is the whole process's, and it may wait for the other ranks."""
        self.seat, self._before = seat, before
        self._plan: Plan | None = None
        self._planned, self._built = threading.Event(), threading.Event()
        self._worker: Worker | None = None
        self._turns: Turns | None = None
        self._failure: Failure | None = None
        self._calls = timeline.Calls()

    def prepare(self, plan: Plan) -> None:
        """What `build` needs. Comes by another queue: another role's worker may call before the driver says `build`."""
        self._plan = plan
        self._planned.set()

    def build(self, connect: Callable[[Plan], None]) -> list[Any]:
        """Make the worker, once `connect` has brought this process to its channels."""
        return self._run("__init__", lambda: self._ensure_built(connect), (), 0)

    def call(self, packed: list[Any], connect: Callable[[Plan], None]) -> list[Any]:
        """Run a method, see `answers.pack_call`; the packed `Answer`."""
        self._ensure_built(connect)
        return self._invoke(packed)

    def beside(self, packed: list[Any]) -> list[Any]:
        """As `call`, in another thread."""
        self.await_built()
        return self._invoke(packed)

    def await_built(self) -> None:
        """Until the worker is there, or could not be made."""
        self._built.wait()

    def calls(self) -> list[timeline.Call]:
        """Those under way, and those that have just ended; see `timeline.Calls`."""
        return [timeline.Call(self.seat.role, self.seat.rank, method, timing) for method, timing in self._calls.now()]

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()

    def _invoke(self, packed: list[Any]) -> list[Any]:
        method, args, kwargs, outs, ticket = unpack_call(packed)
        return self._run(method, lambda: getattr(self._worker, method)(*args, **kwargs), outs, ticket)

    def _ensure_built(self, connect: Callable[[Plan], None]) -> None:
        """In the thread of the ordinary calls, as the worker's constructor is to run in the same."""
        if not self._built.is_set():
            self._planned.wait()
            assert self._plan is not None
            try:
                connect(self._plan)
                if self._before is not None:
                    self._before.await_built()
                self._worker = self._make(self._plan)
                self._turns = Turns(self._worker, client())
            except BaseException as error:  # every call is answered with it
                self._failure = failure_of(error, "__init__")
                log.error("__init__ failed: %s", self._failure.traceback)
            finally:
                self._built.set()

    def _make(self, plan: Plan) -> Worker:
        seat = self.seat
        made, args, kwargs = cloudpickle.loads(plan.blob)
        worker: Worker = made.__new__(made)
        worker.role, worker.rank, worker.world = seat.role, seat.rank, seat.world
        worker.device = "cpu" if seat.kind == "cpu" else "cuda:0"
        worker.node, worker.devices = seat.node, seat.devices
        worker.run_directory, worker.init_method = seat.run_directory, plan.init_method
        made.__init__(worker, *args, **kwargs)
        return worker

    def _run(self, method: str, body: Callable[[], Any], outs: Sequence[Out], ticket: int) -> list[Any]:
        """Run a call and answer for it, whatever it does."""
        log.debug("%s begins", method)
        failure, value = self._failure, None
        with self._calls.call(method) as recorder:
            if failure is None:
                try:
                    with self._turn(ticket):
                        value = body()
                        _finish(outs)
                except BaseException as error:  # the caller is told; even a SystemExit ends the call only
                    failure = failure_of(error, method)
                    log.error("%s failed: %s", method, failure.traceback)
            failure = failure or self._failure
            if failure is not None:
                _fail(outs, f"{self.seat.identity} failed in {failure.method}: {failure.summary}")
                _give_back()
        timing = recorder.timing
        log.debug("%s ended after %.6f s: %s", method, timing.total, timing.kinds)
        peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        # not with a call that takes no turn, such as one that another worker makes: who measures moves does not see its answer
        switches = self._turns.switches() if ticket and self._turns is not None else ()
        device_memory = reserved(self.seat.kind)
        return Answer(value, failure, timing, peak_memory, switches=tuple(switches), device_memory=device_memory).pack()

    def _turn(self, ticket: int) -> contextlib.AbstractContextManager[None]:
        return self._turns.taken(ticket) if ticket and self._turns is not None else contextlib.nullcontext()


def reserved(kind: str) -> int:
    """Bytes of the first device that this process has reserved at most. Nothing is imported for it: who has not used torch has
    reserved nothing."""
    torch = sys.modules.get("torch")
    if kind != "cuda" or torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.max_memory_reserved())


def _finish(outs: Sequence[Out]) -> None:
    for channel, producer in outs:
        Channel(channel).flush()
        Channel(channel).done(producer)


def _give_back() -> None:
    """What the call has leased and not settled is for others again."""
    with contextlib.suppress(ChannelError):  # not connected, or the connection is lost
        leases = client().leases
        leases.give_back(leases.of_this_thread())


def _fail(outs: Sequence[Out], error: str) -> None:
    for channel, producer in outs:
        with contextlib.suppress(ChannelError):  # broken or dropped before
            Channel(channel).done(producer, error)

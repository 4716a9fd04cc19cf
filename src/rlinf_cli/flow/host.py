"""The Ray actor that a worker lives in: its log, its environment, its calls, and what is told of their outcome.

Imports nothing heavy: a rank is up as soon as its process is.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import resource
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ray import cloudpickle

from rlinf_cli.flow import timeline
from rlinf_cli.flow.answers import Answer, Failure, failure_of, unpack_call
from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import Client, connect
from rlinf_cli.flow.controller import ControllerAddress
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.process_log import log_to
from rlinf_cli.flow.worker import Worker

log = logging.getLogger(__name__)

CONCURRENCY = {"control": 1, "host": 2}
"""Ray's concurrency groups beside the one of the ordinary calls; one `host` thread is for ever in `watch`."""

Out = Sequence[str]
"""A channel's name, and this call's name as one of its producers."""


@dataclass(frozen=True)
class Seat:
    """A rank's place, and what its process is to be like."""

    role: str
    rank: int
    world: int
    devices: tuple[int, ...]
    kind: str
    local: tuple[str, ...]
    node: str
    node_id: str
    address: str
    directory: Path
    """For logs."""
    run_directory: Path
    env: Mapping[str, str]
    call_timeout: float
    """Seconds that a call may take, and so that it may wait on a channel."""

    @property
    def identity(self) -> str:
        return f"{self.role}[{self.rank}]"

    @property
    def log(self) -> Path:
        return self.directory / f"{self.role}-{self.rank}.log"

    @property
    def stacks(self) -> Path:
        return self.directory / f"{self.role}-{self.rank}.stacks.txt"

    def environment(self) -> dict[str, str]:
        """One thread a CPU slot: more of them, spinning on shared cores, cost many times what they bring."""
        threads = str(len(self.devices) if self.kind == "cpu" else 1)
        visible = ",".join(self.local) if self.kind == "cuda" else ""
        return {"CUDA_VISIBLE_DEVICES": visible, "OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive", **self.env}


@dataclass(frozen=True)
class Plan:
    """What is needed to make a worker."""

    blob: bytes
    """Pickled: its class, positional and keyword arguments."""
    address: ControllerAddress
    stores: Mapping[str, Any]
    """Node -> the actor that reads its shared memory."""
    init_method: str = ""


class Host:
    """Hosts one worker. `call` runs in the ordinary queue, `control` beside it."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._plan: Plan | None = None
        self._planned, self._built = threading.Event(), threading.Event()
        self._worker: Worker | None = None
        self._failure: Failure | None = None
        self._client: Client | None = None
        os.environ.update(seat.environment())
        self._log = log_to(seat.log)

    def hello(self) -> int:
        """The process id, as soon as there is a process."""
        return os.getpid()

    def watch(self) -> None:
        """Ends with the process: that is how its end is seen."""
        threading.Event().wait()

    def reserve(self) -> str:
        """An address where the ranks can meet, for as long as rank 0 lives nobody else's."""
        # bound, not listening: the port is given to no one else, and SO_REUSEADDR lets a listener in
        self._reservation = socket.socket(socket.AF_INET6 if ":" in self._seat.address else socket.AF_INET)
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind((self._seat.address, 0))
        host = f"[{self._seat.address}]" if ":" in self._seat.address else self._seat.address
        return f"tcp://{host}:{self._reservation.getsockname()[1]}"

    def prepare(self, plan: Plan, init_method: str) -> None:
        """What `build` needs. Comes by another queue: another role's worker may call before the driver says `build`."""
        self._plan = replace(plan, init_method=init_method)
        self._planned.set()

    def build(self) -> list[Any]:
        """Connect to the channels and make the worker."""
        return self._run("__init__", self._ensure_built, ())

    def call(self, packed: list[Any]) -> list[Any]:
        """Run a method, see `answers.pack_call`; the packed `Answer`."""
        method, args, kwargs, outs = unpack_call(packed)
        self._ensure_built()
        return self._run(method, lambda: getattr(self._worker, method)(*args, **kwargs), outs)

    def control(self, packed: list[Any]) -> list[Any]:
        """As `call`, beside it."""
        method, args, kwargs, outs = unpack_call(packed)
        self._built.wait()
        return self._run(method, lambda: getattr(self._worker, method)(*args, **kwargs), outs)

    def dump_stacks(self, reason: str) -> str:
        """Append all threads' stacks to a file beside the log; its path."""
        with self._seat.stacks.open("a") as file:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._seat.identity}: {reason}", file=file, flush=True)
            faulthandler.dump_traceback(file)
        return str(self._seat.stacks)

    def close(self) -> None:
        """End the worker, send what its channels still hold."""
        if self._worker is not None:
            self._worker.close()
        if self._client is not None:
            self._client.close()

    def _ensure_built(self) -> None:
        """In the thread of the ordinary calls, as the worker's constructor is to run in the same."""
        if not self._built.is_set():
            self._planned.wait()
            assert self._plan is not None
            try:
                self._worker = self._build(self._plan)
            except BaseException as error:  # every call is answered with it
                self._failure = failure_of(error, "__init__")
                log.error("__init__ failed: %s", self._failure.traceback)
            finally:
                self._built.set()

    def _build(self, plan: Plan) -> Worker:
        seat = self._seat
        self._client = connect(plan.address, seat.identity, seat.node, seat.call_timeout)
        register_stores(self._client, plan.stores)
        made, args, kwargs = cloudpickle.loads(plan.blob)
        worker: Worker = made.__new__(made)
        worker.role, worker.rank, worker.world = seat.role, seat.rank, seat.world
        worker.device = "cpu" if seat.kind == "cpu" else "cuda:0"
        worker.node, worker.devices = seat.node, seat.devices
        worker.run_directory, worker.init_method = seat.run_directory, plan.init_method
        made.__init__(worker, *args, **kwargs)
        return worker

    def _run(self, method: str, body: Callable[[], Any], outs: Sequence[Out]) -> list[Any]:
        """Run a call and answer for it, whatever it does."""
        log.debug("%s begins", method)
        failure, value = self._failure, None
        with timeline.call() as recorder:
            if failure is None:
                try:
                    value = body()
                    _finish(outs)
                except BaseException as error:  # the caller is told; even a SystemExit ends the call only
                    failure = failure_of(error, method)
                    log.error("%s failed: %s", method, failure.traceback)
            failure = failure or self._failure
            if failure is not None:
                _fail(outs, f"{self._seat.identity} failed in {failure.method}: {failure.summary}")
        timing = recorder.timing
        log.debug("%s ended after %.6f s: %s", method, timing.total, timing.kinds)
        return Answer(value, failure, timing, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024).pack()


def register_stores(client: Client, stores: Mapping[str, Any]) -> None:
    """How this process reads the shared memory of other nodes: through the actors that hold it."""
    import ray

    def reader(store: Any) -> Callable[[str, int, int], Any]:
        return lambda file, offset, length: ray.get(store.read_segment.remote(file, offset, length))

    for node, store in stores.items():
        if node != client.node:
            client.register_node_store(node, reader(store))


def _finish(outs: Sequence[Out]) -> None:
    for channel, producer in outs:
        Channel(channel).flush()
        Channel(channel).done(producer)


def _fail(outs: Sequence[Out], error: str) -> None:
    for channel, producer in outs:
        with contextlib.suppress(ChannelError):  # broken or dropped before
            Channel(channel).done(producer, error)

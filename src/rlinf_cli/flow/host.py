"""The Ray actor that workers live in: its log, its environment, and the threads that their calls run in.

Imports nothing heavy: a rank is up as soon as its process is.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf_cli.flow.client import Client, connect
from rlinf_cli.flow.process_log import hear_signals, log_to, obey_signals
from rlinf_cli.flow.seat import Plan, Seat
from rlinf_cli.flow.tenant import Tenant
from rlinf_cli.flow.timeline import CLOCK

log = logging.getLogger(__name__)

STREAMS = 16
"""Calls of `concurrent` methods that run at once in a process."""


def concurrency(tenants: int) -> dict[str, int]:
    """Ray's concurrency groups, and their threads, beside the one of the first tenant's ordinary calls; for each tenant one
    `host` thread is for ever in `watch`."""
    own = {control_of(number): 1 for number in range(tenants)} | {queue_of(number): 1 for number in range(1, tenants)}
    return {"host": 1 + tenants, "stream": STREAMS * tenants, **own}


def queue_of(tenant: int) -> str:
    """The concurrency group of a tenant's ordinary calls; empty: Ray's default."""
    return f"tenant-{tenant}" if tenant else ""


def control_of(tenant: int) -> str:
    """The same of its control calls: one may wait for another tenant's."""
    return f"control-{tenant}"


class Host:
    """Hosts one worker, or those of several roles that share a process. `call` runs in the ordinary queue of its role,
    `beside` in another one."""

    def __init__(self, seats: Sequence[Seat]) -> None:
        self._seat = seats[0]
        self._tenants: dict[str, Tenant] = {}
        latest = None
        for seat in seats:
            latest = self._tenants[seat.role] = Tenant(seat, latest)
        self._reserved: list[socket.socket] = []
        self._client: Client | None = None
        self._connecting = threading.Lock()
        os.environ.update(self._seat.environment())
        self._log = log_to(self._seat.log)
        self._go_to(self._seat.here)
        if self._seat.incarnation:
            log.warning("a new process for %s, the one before has died (start number %d)", self._seat.host,
                        self._seat.incarnation + 1)

    def hello(self) -> int:
        """The process id, as soon as there is a process."""
        return os.getpid()

    def watch(self) -> None:
        """Ends with the process: that is how its end is seen."""
        threading.Event().wait()

    def reserve(self) -> str:
        """An address where the ranks can meet, for as long as rank 0 lives nobody else's."""
        # bound, not listening: the port is given to no one else, and SO_REUSEADDR lets a listener in
        bound = socket.socket(socket.AF_INET6 if ":" in self._seat.address else socket.AF_INET)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((self._seat.address, 0))
        self._reserved.append(bound)
        host = f"[{self._seat.address}]" if ":" in self._seat.address else self._seat.address
        return f"tcp://{host}:{bound.getsockname()[1]}"

    def prepare(self, role: str, plan: Plan, init_method: str) -> None:
        self._tenants[role].prepare(replace(plan, init_method=init_method))

    def build(self, role: str) -> list[Any]:
        hear_signals()
        return self._tenants[role].build(self._connect)

    def call(self, role: str, packed: list[Any]) -> list[Any]:
        hear_signals()
        return self._tenants[role].call(packed, self._connect)

    def beside(self, role: str, packed: list[Any]) -> list[Any]:
        hear_signals()
        return self._tenants[role].beside(packed)

    def running(self) -> list[Any]:
        """This process's clock, and its calls of any role: those under way, and those that have just ended."""
        return [CLOCK, [call.pack() for tenant in self._tenants.values() for call in tenant.calls()]]

    def dump_stacks(self, reason: str) -> str:
        """Append all threads' stacks to a file beside the log; its path."""
        with self._seat.stacks.open("a") as file:
            print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {self._seat.identity}: {reason}", file=file, flush=True)
            faulthandler.dump_traceback(file)
        return str(self._seat.stacks)

    def close(self) -> None:
        """End the workers, send what their channels still hold."""
        for tenant in self._tenants.values():
            tenant.close()
        if self._client is not None:
            self._client.close()
        obey_signals()

    def _go_to(self, directory: Path) -> None:
        """A Ray that was there before the command works in a directory of its own, perhaps on another machine."""
        try:
            os.chdir(directory)
        except OSError as error:
            log.warning("%s has no %s (%s): relative paths are not what they are for the command", self._seat.node, directory,
                        error.strerror)

    def _connect(self, plan: Plan) -> None:
        """Once a process, under the names of all its tenants."""
        with self._connecting:
            if self._client is None:
                seat = self._seat
                identity = "+".join(tenant.seat.identity for tenant in self._tenants.values())
                self._client = connect(plan.address, identity, seat.node, seat.call_timeout)
                register_stores(self._client, plan.stores)


def register_stores(client: Client, stores: Mapping[str, Any]) -> None:
    """How this process reads the shared memory of other nodes: through the actors that hold it."""
    import ray

    def reader(store: Any) -> Callable[[str, int, int], Any]:
        return lambda file, offset, length: ray.get(store.read_segment.remote(file, offset, length))

    for node, store in stores.items():
        if node != client.node:
            client.register_node_store(node, reader(store))

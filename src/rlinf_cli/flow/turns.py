"""A worker's turns on its devices, where other roles compute on them too."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rlinf_cli.flow.client import Client
from rlinf_cli.flow.errors import CallTimeoutError, ChannelError, ChannelTimeoutError
from rlinf_cli.flow.lock_desk import offload_of
from rlinf_cli.flow.timeline import Switch, recast, spent
from rlinf_cli.flow.worker import Worker, methods

log = logging.getLogger(__name__)


class Turns:
    """Of one worker, whose state is on its devices from its constructor on, until another role needs the room.

    A turn is asked for by the ticket that its call was issued with. A worker that never computes on devices needs none, and
    nobody is told of it.
    """

    def __init__(self, worker: Worker, client: Client) -> None:
        self._worker, self._client = worker, client
        self._loaded = True
        self._moving, self._noting = threading.Lock(), threading.Lock()
        self._switches: list[Switch] = []
        self._failure: BaseException | None = None
        if any(spec.on_device for spec in methods(type(worker)).values()):
            client.register(offload_of(worker.role), self._make_room)
            client.send("lock.enter", worker.role, worker.rank)

    @contextmanager
    def taken(self, ticket: int) -> Iterator[None]:
        """The group holds its devices inside, and what the worker needs is on them.

        Raises CallTimeoutError when others hold them longer than a call may take, and what `onload`, or `offload` before
        it, raises.
        """
        try:
            self._await(ticket)
            self._onload()
            yield
        finally:
            with suppress(ChannelError):  # the connection is lost, and with it what this process held
                self._client.send("lock.release", ticket, self._worker.rank)

    def switches(self) -> list[Switch]:
        """What was moved since this was asked last."""
        with self._noting:
            switches, self._switches = self._switches, []
        return switches

    def _await(self, ticket: int) -> None:
        worker = self._worker
        try:
            with spent("wait_lock"):
                switch_s = self._client.request("lock.ask", ticket, worker.role, worker.rank)
        except ChannelTimeoutError:
            raise CallTimeoutError(f"{worker.role}[{worker.rank}] has waited {self._client.timeout:g} s for its turn on devices "
                                   f"{', '.join(map(str, worker.devices))}, which other roles use") from None
        recast(switch_s, "offload")

    def _onload(self) -> None:
        with spent("onload"), self._moving:  # the first of several calls does it, the others wait
            if self._failure is not None:
                raise self._failure
            if not self._loaded:
                began = time.monotonic()
                moved = self._worker.onload()
                self._loaded = True
                self._moved("onload", moved, time.monotonic() - began)

    def _make_room(self) -> None:
        """On the thread that receives messages, which must not wait."""
        threading.Thread(target=self._offload, name=f"rlinf-offload-{self._worker.role}", daemon=True).start()

    def _offload(self) -> None:
        freed, began = 0, time.monotonic()
        with self._moving:
            try:
                if self._loaded:
                    self._loaded = False
                    freed = self._worker.offload()
                    self._moved("offload", freed, time.monotonic() - began)
            except BaseException as error:  # there is no call here that could fail of it: the next one does
                log.exception("offload failed")
                self._failure = error
        with suppress(ChannelError):
            self._client.send("lock.offloaded", self._worker.role, freed, time.monotonic() - began)

    def _moved(self, kind: str, size: int, seconds: float) -> None:
        log.debug("%s: %d bytes in %.3f s", kind, size, seconds)
        with self._noting:
            self._switches.append(Switch(kind, size, seconds))

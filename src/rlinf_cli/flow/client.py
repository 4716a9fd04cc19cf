"""A process's part in all channels: `connect` once, then `client()`.

Puts are serialised by the thread that puts and sent by it; gets wait for the controller's answer and rebuild the items
in the thread that gets. Several threads of a worker may use channels at once.
"""

from __future__ import annotations

import atexit
import itertools
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlinf_cli.flow.codec import Codec, Reader
from rlinf_cli.flow.connection import Connection, Reply, error_of
from rlinf_cli.flow.errors import ChannelBrokenError, ChannelError, ChannelFullError, ChannelTimeoutError
from rlinf_cli.flow.frames import Message
from rlinf_cli.flow.leases import Leases
from rlinf_cli.flow.outbox import Outbox, Payload
from rlinf_cli.flow.segments import remove_file, remove_files_of
from rlinf_cli.flow.shared_directory import remove_if_abandoned
from rlinf_cli.flow.timeline import spent
from rlinf_cli.state.channel_events import LeaseId

if TYPE_CHECKING:
    from rlinf_cli.flow.controller import ControllerAddress


class Client:
    """Used through `Channel`, but for `cancel_all`, `flush`, `register_node_store`, `node_store`, `leases`, `close`, and
    the three (`register`, `request`, `send`) by which other machines of the controller are used, see `rlinf_cli.flow.desk`.

    `node`: the name of this process's node, by default the controller's when its shared memory is this process's, too ·
    `host`: the address of this machine that other nodes of the run can reach ·
    `timeout`: seconds that a call waits when it is not told otherwise · `stores`: removes the files of its node.
    """

    def __init__(self, address: ControllerAddress, identity: str, node: str | None = None, timeout: float = 600.0,
                 stores: bool = False) -> None:
        self.address, self.identity, self.timeout = address, identity, timeout
        self._connection = Connection(address, identity, node, stores)
        self._lock, self._changed = self._connection.lock, self._connection.changed
        self.node, self.host, self.id = self._connection.node, self._connection.host, self._connection.client
        self._directory = address.directory_on(self.node)
        self._codec = Codec(self.node, self._directory, self.id, address.pool_bytes, self._connection.wake)
        self._outboxes: weakref.WeakValueDictionary[str, Outbox] = weakref.WeakValueDictionary()
        self._active: dict[str, Outbox] = {}
        """Outboxes with something pending, or with an error that nobody has been told."""
        self._numbers = itertools.count(1)
        self.leases = Leases(self._connection, self._send_results)
        self._full: set[str] = set()
        self._handlers: dict[str, Callable[..., None]] = {
            "accept": self._on_accept, "refuse": self._on_refuse, "returned": self._codec.pool.give_back,
            "forget": self._codec.mappings.forget, "cancelled": self._on_cancelled, "items": self._on_abandoned,
            "fail": self._on_abandoned, "ok": self._on_abandoned, "leased": self._on_abandoned_leases,
            "full": self._on_full, "remove": self._on_remove, "sweep": self._on_sweep,
        }  # fmt: skip
        self._connection.start(self._receive, self._gather, self._lost)
        _clients.add(self)

    @property
    def connected(self) -> bool:
        return self._connection.failure is None

    def register_node_store(self, node: str, reader: Reader) -> None:
        """How the shared memory of another node is read."""
        self._codec.node_stores[node] = reader

    def node_store(self, node: str) -> Reader:
        """What reads the shared memory of another node. Raises ChannelError when none was registered."""
        return self._codec.node_store(node)

    def cancel_all(self, reason: str) -> None:
        """Every put and get of every process, waiting or later, raises ChannelBrokenError(reason)."""
        self.request("cancel_all", reason)

    # ---- other machines behind the controller's desk ----

    def register(self, kind: str, handler: Callable[..., None]) -> None:
        """What is done with pushed messages of a kind: `handler(*arguments)`, on the receiving thread, with the lock of
        this client held. It must not wait."""
        with self._lock:
            assert kind not in self._handlers, f"messages of kind '{kind}' are handled already"
            self._handlers[kind] = handler

    def request(self, kind: str, *arguments: Any, timeout: float | None = None) -> Any:
        """Send a request and wait for its answer, by default as long as the client's `timeout`; return the value, raise the
        error."""
        with self._lock:
            reply = self._connection.request(kind, *arguments)
        self._connection.transmit()
        return self._result(reply, timeout)

    def send(self, kind: str, *arguments: Any) -> None:
        """Send a message that has no answer. Raises ChannelBrokenError when the connection has ended."""
        with self._lock:
            if self._connection.failure is not None:
                raise self._connection.failure
            self._connection.push((kind, *arguments))
        self._connection.transmit()

    def close(self) -> None:
        """Send what is left and disconnect. What was put before remains readable."""
        if self.connected:
            with self._lock:
                self._send_results()
            self._connection.close()

    # ---- put ----

    def _send_results(self) -> None:
        """What was put and is not sent yet, with the lock held."""
        for outbox in self._active.values():
            outbox.send()

    def outbox(self, channel: str) -> Outbox:
        with self._lock:
            outbox = self._outboxes.get(channel)
            if outbox is None:
                outbox = self._outboxes[channel] = Outbox(channel, self._connection.push)
            return outbox

    def put(self, outbox: Outbox, items: Sequence[Any], weights: Sequence[float], keys: Sequence[Any], wait: bool,
            timeout: float | None, settles: tuple[LeaseId, ...] = ()) -> None:
        """Put items, the last of which settles leases."""
        deadline = self._deadline(timeout)
        if settles:
            with self.leases.promised(settles):
                first, last = self._put(outbox, items, weights, keys, deadline, settles)
        else:
            first, last = self._put(outbox, items, weights, keys, deadline, ())
        if wait and last:
            self._await_accepted(outbox, first, last, deadline)

    def _put(self, outbox: Outbox, items: Sequence[Any], weights: Sequence[float], keys: Sequence[Any], deadline: float,
             settles: tuple[LeaseId, ...]) -> tuple[int, int]:
        """The numbers of the first and the last item; 0 where there is none."""
        first = last = 0
        left = len(items)
        for item, weight, key in zip(items, weights, keys, strict=True):
            payload, inline, size = self._codec.encode(item, deadline)
            left -= 1
            try:
                last = self._add(outbox, (weight, key, size, payload, () if left else settles), inline, deadline)
            except ChannelError:
                self._codec.take_back(payload)
                raise
            first = first or last
        return first, last

    def _add(self, outbox: Outbox, row: tuple[float, Any, int, Payload, Any], inline: int, deadline: float) -> int:
        """Queue an item, and send it if it is due; its number."""
        with self._lock:
            self._check(outbox)
            if not outbox.has_room(inline):
                self._await_room(outbox, inline, deadline)
            number = next(self._numbers)
            self._active[outbox.channel] = outbox
            due = outbox.add((number, *row), inline, now=row[3][2] is not None)
        if due:
            self._connection.transmit()
        return number

    def _check(self, outbox: Outbox, ending: bool = False) -> None:
        """Raise what has become of the connection, or of earlier puts. `ending`: nothing is put any more, and that the channel
        had reached its limit is no error."""
        if self._connection.failure is not None:
            raise self._connection.failure
        if outbox.refusal is not None and not (ending and outbox.refusal[0] == "full"):
            outbox.unreported = False
            self._settle(outbox)
            raise error_of(*outbox.refusal)

    def _await_room(self, outbox: Outbox, inline: int, deadline: float) -> None:
        outbox.send()
        self._connection.wake()
        with spent("wait_space"):
            if not self._until(outbox, lambda: outbox.has_room(inline), deadline):
                raise _full(outbox.channel, outbox.pending)

    def _until(self, outbox: Outbox, ready: Callable[[], bool], deadline: float, ending: bool = False) -> bool:
        """Wait, with the lock held, until `ready()`; False when the time is over."""
        while not ready():
            self._check(outbox, ending)  # nobody tells again what has been told before the wait
            if not self._changed.wait(max(0.0, deadline - time.monotonic())):
                return ready()
            self._check(outbox, ending)
        return True

    def _await_accepted(self, outbox: Outbox, first: int, last: int, deadline: float) -> None:
        """Wait until the channel has taken items `first` to `last`; take back those it has no room for."""
        with self._lock:
            outbox.send()
        self._connection.transmit()
        with self._lock, spent("wait_space"):
            if self._until(outbox, lambda: outbox.settled(last), deadline):
                self._check(outbox)
                return
            reply = self._connection.request("withdraw", outbox.channel, first, last,
                                             then=lambda numbers: self.leases.restored(outbox.forget(numbers)))
        self._connection.transmit()
        withdrawn = self._result(reply)
        if withdrawn:
            raise _full(outbox.channel, len(withdrawn))

    def flush(self, timeout: float | None = None, channel: str | None = None) -> None:
        """Wait until what this process has put (into one channel) is accepted. Raises what else became of it."""
        deadline = self._deadline(timeout)
        with self._lock:
            outboxes = [outbox for outbox in self._active.values() if channel in (None, outbox.channel)]
            for outbox in outboxes:
                outbox.send()
        self._connection.transmit()
        with self._lock, spent("wait_space"):
            for outbox in outboxes:
                if not self._until(outbox, lambda outbox=outbox: not outbox.pending, deadline, True):  # type: ignore[misc]
                    raise _full(outbox.channel, outbox.pending)
                self._check(outbox, ending=True)

    def report(self, outbox: Outbox) -> None:
        """Raise what became of earlier puts, if they were refused."""
        with self._lock:
            self._check(outbox, ending=True)

    def forget(self, outbox: Outbox) -> None:
        """The channel was dropped: a new one of its name knows nothing of the past."""
        with self._lock:
            outbox.reset()
            self._settle(outbox)

    # ---- get ----

    def get(self, channel: str, n: int, at_least: int, weight: float | None, key: Any,
            timeout: float | None) -> list[Any]:
        limit = self.timeout if timeout is None else timeout
        with spent("wait_data"):
            payloads = self._await_items(self._request("get", channel, n, at_least, weight, key), channel, limit)
        return self._codec.decode_all(payloads)

    def lease(self, channel: str, n: int, at_least: int, weight: float | None, key: Any,
              timeout: float | None) -> list[tuple[Any, int]]:
        """Items, and the numbers of their leases, which are this thread's from now on."""
        limit, thread = self.timeout if timeout is None else timeout, threading.get_ident()

        def note(rows: Sequence[tuple[Payload, int]]) -> None:
            self.leases.taken(channel, (number for _, number in rows), thread)

        with spent("wait_data"):
            rows = self._await_items(self._request("get", channel, n, at_least, weight, key, True, then=note), channel, limit)
        items = self._codec.decode_all([payload for payload, _ in rows])
        return [(item, number) for item, (_, number) in zip(items, rows, strict=True)]

    def _await_items(self, reply: Reply, channel: str, limit: float) -> Sequence[Any]:
        try:
            in_time = reply.wait(limit)
        except BaseException:  # Ctrl-C and the like: what comes now is for nobody
            self._cancel(reply, channel, abandon=True)
            raise
        if not in_time:
            self._cancel(reply, channel)
        try:
            rows: Sequence[Any] = self._result(reply)
        except ChannelTimeoutError:
            raise ChannelTimeoutError(f"nothing came from channel '{channel}' within {limit:g} s") from None
        return rows

    def _cancel(self, reply: Reply, channel: str, abandon: bool = False) -> None:
        """End a get; the answer says whether it came too late for that."""
        with self._lock:
            if abandon:
                self._connection.abandon(reply)
            self._connection.push(("cancel", reply.number, channel))
        self._connection.transmit()

    def is_full(self, channel: str) -> bool:
        """Whether this process has been told that a channel for which it works has reached its limit."""
        return channel in self._full

    # ---- requests ----

    def ask(self, kind: str, channel: str, *arguments: Any) -> Any:
        """Send a request about a channel, behind all that was put into it here, and wait for the answer."""
        return self._result(self._request(kind, channel, *arguments))

    def _request(self, kind: str, channel: str, *arguments: Any, then: Callable[[Any], None] | None = None) -> Reply:
        with self._lock:
            outbox = self._active.get(channel)
            if outbox is not None:
                outbox.send()
            reply = self._connection.request(kind, channel, *arguments, then=then)
        self._connection.transmit()
        return reply

    def _result(self, reply: Reply, timeout: float | None = None) -> Any:
        limit = self.timeout if timeout is None else timeout
        if not reply.wait(limit):
            raise ChannelTimeoutError(f"the controller has not answered {self.identity} within {limit:g} s")
        return reply.value()

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    # ---- what the controller says: on the receiving thread, with the lock held ----

    def _receive(self, message: Message) -> None:
        self._handlers[message[0]](*message[1:])

    def _on_accept(self, channel: str, count: int, capacity: int) -> None:
        outbox = self._active[channel]
        self.leases.ended(outbox.accepted(count, capacity))
        self._settle(outbox)

    def _on_refuse(self, channel: str, numbers: Sequence[int], kind: str, text: str) -> None:
        outbox = self._active[channel]
        self.leases.restored(outbox.refused(numbers, kind, text))
        self._settle(outbox)

    def _settle(self, outbox: Outbox) -> None:
        if not outbox.pending and not outbox.unreported:
            self._active.pop(outbox.channel, None)
        self._changed.notify_all()

    def _on_abandoned(self, request: int, value: object, text: str = "") -> None:
        """The answer to a get that was interrupted."""
        if isinstance(value, list):
            self._codec.discard(value)

    def _on_abandoned_leases(self, request: int, rows: Sequence[tuple[Payload, int]], channel: str) -> None:
        self._codec.discard([payload for payload, _ in rows])
        self.leases.unwanted(channel, [number for _, number in rows])

    def _on_full(self, channel: str, full: bool) -> None:
        (self._full.add if full else self._full.discard)(channel)

    def _on_cancelled(self, reason: str) -> None:
        self._codec.pool.fail(ChannelBrokenError(reason))

    def _on_remove(self, files: Sequence[str]) -> None:
        for file in files:
            remove_file(self._directory, file)

    def _on_sweep(self, owner: int, keep: Sequence[str]) -> None:
        remove_files_of(self._directory, owner, keep)

    def _gather(self) -> list[Message]:
        """What goes along with the next frame: slots that nobody here reads any more, files that we removed."""
        released, removed = self._codec.take_released(), self._codec.pool.take_removed()
        return [("release", released)] * bool(released) + [("removed", removed)] * bool(removed)

    def _lost(self, error: ChannelError) -> None:
        self._codec.pool.fail(error)
        if not self._connection.closing:  # the controller may have been killed
            remove_if_abandoned(self._directory, patience=1.0)

    def abandon_after_fork(self) -> None:
        self._connection.release_descriptors()


def _full(channel: str, count: int) -> ChannelFullError:
    return ChannelFullError(f"channel '{channel}' is full: {count} items put here have found no room in time")


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_current: Client | None = None


def connect(address: ControllerAddress, identity: str, node: str | None = None, timeout: float = 600.0) -> Client:
    """Connect this process, once. Raises ChannelError when it is connected already or the controller refuses it.

    `identity`: what errors call this process, and what declares it as a producer: `rollout[1]` · `timeout`: seconds
    that its calls wait when they are not told otherwise.
    """
    global _current
    if _current is not None and _current.connected:
        raise ChannelError(f"this process is already connected to a controller, as {_current.identity}: close it first")
    _current = Client(address, identity, node, timeout)
    atexit.register(_current.close)
    return _current


def client() -> Client:
    """This process's client. Raises ChannelError before `connect`."""
    if _current is None:
        raise ChannelError("this process is not connected to a controller: call connect(address, identity) first")
    return _current


def _in_forked_child() -> None:
    # the connection is the parent's: a child that kept it open would hide the parent's death from the controller
    global _current
    _current = None
    for inherited in _clients:
        inherited.abandon_after_fork()


os.register_at_fork(after_in_child=_in_forked_child)

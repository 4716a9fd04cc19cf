"""The controller's socket server: reads messages, asks the state machines, carries out their instructions.

One thread, one selector. All answers of one round to one client travel in one frame.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.flow.frames import FrameError, FrameReader, Message, pack, unpack
from rlinf_cli.flow.segments import Slot, remove_file, remove_files_of
from rlinf_cli.state.channel import ChannelsState
from rlinf_cli.state.channel_events import (
    Accept,
    Cancel,
    CancelAll,
    Close,
    Confirm,
    Create,
    Declare,
    Deliver,
    Done,
    Drop,
    Event,
    Fail,
    Get,
    Gone,
    Instruction,
    Item,
    Join,
    Put,
    Refuse,
    Release,
    Withdraw,
)
from rlinf_cli.state.slots import Freed, SlotId, SlotLedger

_HELLO_LIMIT = 4096
_FRAME_LIMIT = 1 << 40
_EVENTS: dict[str, Callable[..., Event]] = {
    "get": Get, "cancel": Cancel, "create": Create, "declare": Declare, "done": Done, "close": Close, "drop": Drop,
    "withdraw": Withdraw,
}  # fmt: skip
"""Messages that are an event as they stand, but for the client's number."""


@dataclass(slots=True, eq=False)
class _Connection:
    sock: socket.socket
    reader: FrameReader = field(default_factory=lambda: FrameReader(_HELLO_LIMIT))
    trusted: bool = False
    client: int = 0
    identity: str = ""
    node: str = ""
    stores: bool = False
    """Removes the shared-memory files of its node when told to."""
    polite: bool = False
    """Said goodbye."""
    messages: list[Message] = field(default_factory=list)
    unsent: deque[memoryview] = field(default_factory=deque)


class Server:
    """Listens from construction, answers from `start` until `stop`."""

    def __init__(self, token: bytes, host: str, directory: str, node: str) -> None:
        self.node, self.unix_path = node, os.path.join(directory, "socket")
        self._token, self._directory = token, directory
        self._state, self._ledger = ChannelsState(), SlotLedger()
        self._connections: dict[int, _Connection] = {}
        self._touched: dict[_Connection, None] = {}
        self._joined = 0
        self._lock = threading.Lock()
        self._stopping = False
        self._failure: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        self._wake, woken = socket.socketpair()
        self._selector.register(woken, selectors.EVENT_READ, None)
        self.port = self._listen(host)
        self._thread = threading.Thread(target=self._run, name="rlinf-controller", daemon=True)

    def _listen(self, host: str) -> int:
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(self.unix_path)
        tcp = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        for sock in (unix, tcp):
            sock.listen(128)
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, self._accept)
        port: int = tcp.getsockname()[1]
        return port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        with contextlib.suppress(OSError):  # stopped before, or failed
            self._wake.send(b"x")
        self._thread.join()

    def stats(self) -> Mapping[str, Any]:
        if self._failure is not None:
            raise self._failure
        with self._lock:
            channels = {
                name: {"put": channel.tally.put, "delivered": channel.tally.delivered, "waiting": channel.count,
                       "offered": len(channel.offered), "dropped": channel.tally.dropped.total()}
                for name, channel in self._state.channels.items()}
            clients = [connection.identity for connection in self._connections.values()]
            return {"clients": clients, "channels": channels, "slots": len(self._ledger)}

    # ---- loop ----

    def _run(self) -> None:
        try:
            while not self._stopping:
                for key, mask in self._selector.select():
                    with self._lock:
                        self._ready(key, mask)
                with self._lock:
                    self._answer()
        except BaseException as error:
            self._failure = error
            raise
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake.close()

    def _ready(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, _Connection):
            if mask & selectors.EVENT_WRITE:
                self._touched[key.data] = None
            if mask & selectors.EVENT_READ:
                self._read(key.data)
        elif key.data is not None:
            key.data(key.fileobj)

    def _accept(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            keep_alive(sock)
        self._selector.register(sock, selectors.EVENT_READ, _Connection(sock))

    def _read(self, connection: _Connection) -> None:
        try:
            for frame in connection.reader.receive(connection.sock):
                self._frame(connection, frame)
        except BlockingIOError:
            pass
        except (EOFError, OSError, FrameError):
            self._lost(connection)

    def _frame(self, connection: _Connection, frame: memoryview) -> None:
        if connection.trusted:
            for message in unpack(frame):
                self._message(connection, message)
        elif hmac.compare_digest(bytes(frame), self._token):
            connection.trusted, connection.reader.limit = True, _FRAME_LIMIT
        else:
            raise FrameError("wrong token")

    def _answer(self) -> None:
        """Send each client what this round had for it."""
        while self._touched:
            connection, _ = self._touched.popitem()
            if connection.messages:
                connection.unsent.append(memoryview(pack(connection.messages)))
                connection.messages = []
            try:
                self._send(connection)
            except OSError:
                self._lost(connection)

    def _send(self, connection: _Connection) -> None:
        with contextlib.suppress(BlockingIOError):
            while connection.unsent:
                sent = connection.sock.send(connection.unsent[0])
                connection.unsent[0] = connection.unsent[0][sent:]
                if not connection.unsent[0]:
                    connection.unsent.popleft()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _tell(self, client: int, message: Message) -> None:
        """Put a message aside for a client; one that is gone needs none."""
        connection = self._connections.get(client)
        if connection is not None:
            connection.messages.append(message)
            self._touched[connection] = None

    # ---- messages ----

    def _message(self, connection: _Connection, message: Message) -> None:
        kind, *arguments = message
        if kind in _EVENTS:
            self._handle(_EVENTS[kind](connection.client, *arguments))
        else:
            handler: Callable[..., None] = getattr(self, f"_on_{kind}")  # our own messages: the token was shown
            handler(connection, *arguments)

    def _on_hello(self, connection: _Connection, identity: str, node: str, stores: bool) -> None:
        self._joined += 1
        connection.client, connection.identity, connection.node = self._joined, identity, node
        connection.stores = stores
        self._connections[connection.client] = connection
        self._ledger.join(connection.client, node)
        self._tell(connection.client, ("welcome", connection.client))
        if self._state.cancelled is not None:
            self._tell(connection.client, ("cancelled", self._state.cancelled))
        self._handle(Join(connection.client, identity))

    def _on_put(self, connection: _Connection, channel: str, rows: list[tuple[Any, ...]]) -> None:
        items = tuple(Item(connection.client, *row) for row in rows)
        for slot in _slots(items):
            self._ledger.put(slot.id)
        self._handle(Put(connection.client, channel, items))

    def _on_qsize(self, connection: _Connection, request: int, channel: str) -> None:
        self._tell(connection.client, ("ok", request, self._state.waiting(channel)))

    def _on_cancel_all(self, connection: _Connection, request: int, reason: str) -> None:
        self._handle(CancelAll(reason))
        for client in self._connections:
            self._tell(client, ("cancelled", reason))
        self._tell(connection.client, ("ok", request, 0))

    def _on_release(self, connection: _Connection, slots: list[SlotId]) -> None:
        self._freed(self._ledger.release(slots))

    def _on_removed(self, connection: _Connection, files: list[str]) -> None:
        for file in files:
            self._forget(connection.client, file)

    def _on_bye(self, connection: _Connection) -> None:
        connection.polite = True

    def _lost(self, connection: _Connection) -> None:
        """The connection has ended: its process is gone, or has left."""
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._touched.pop(connection, None)
        if self._connections.pop(connection.client, None) is None:
            return
        self._freed(self._ledger.gone(connection.client))
        self._sweep(connection, self._ledger.files_in_use(connection.client))
        self._handle(Gone(connection.client, "left before it was done" if connection.polite else "died"))

    # ---- instructions ----

    def _handle(self, event: Event) -> None:
        for instruction in self._state.handle(event):
            self._execute(instruction)

    def _execute(self, instruction: Instruction) -> None:
        match instruction:
            case Accept(client, channel, count, window):
                self._tell(client, ("accept", channel, count, window))
            case Refuse(client, channel, numbers, kind, message):
                self._tell(client, ("refuse", channel, numbers, kind, message))
            case Deliver(client, request, items):
                for slot in _slots(items):
                    self._ledger.deliver(slot.id, client)
                self._tell(client, ("items", request, [item.payload for item in items]))
            case Confirm(client, request, value):
                self._tell(client, ("ok", request, value))
            case Fail(client, request, kind, message):
                self._tell(client, ("fail", request, kind, message))
            case Release(items, _):
                self._freed(self._ledger.release([slot.id for slot in _slots(items)]))

    def _freed(self, freed: Freed) -> None:
        for owner, slots in freed.returned.items():
            self._tell(owner, ("returned", slots))
        for removed in freed.removed:
            self._forget(removed.owner, removed.file)
            if removed.node == self.node:
                remove_file(self._directory, removed.file)
            for client in self._stores(removed.node):
                self._tell(client, ("remove", [removed.file]))

    def _forget(self, owner: int, file: str) -> None:
        for client in self._ledger.readers(owner, file):
            self._tell(client, ("forget", [file]))

    def _sweep(self, connection: _Connection, keep: frozenset[str]) -> None:
        """Remove the files of a client that is gone, but for those that somebody still reads."""
        if connection.node == self.node:
            remove_files_of(self._directory, connection.client, keep)
        for client in self._stores(connection.node):
            self._tell(client, ("sweep", connection.client, keep))

    def _stores(self, node: str) -> list[int]:
        return [client for client, connection in self._connections.items()
                if connection.stores and connection.node == node]


def _slots(items: Iterable[Item]) -> list[Slot]:
    """Where those items lie that are in shared memory."""
    return [item.payload[2] for item in items if item.payload[2] is not None]  # type: ignore[index]


def keep_alive(sock: socket.socket) -> None:
    """Make a TCP connection answer at once, and notice within seconds that the other machine is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)

"""The controller's socket server: connections, tokens and frames. What messages mean is the affair of its desk.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from rlinf_cli.flow.desk import Desk, Guest
from rlinf_cli.flow.frames import FrameError, FrameReader, Message, pack, unpack
from rlinf_cli.flow.journal_file import JournalFile

Answer = TypeVar("Answer")

_HELLO_LIMIT = 4096
_FRAME_LIMIT = 1 << 40


@dataclass(slots=True, eq=False)
class _Connection:
    sock: socket.socket
    reader: FrameReader = field(default_factory=lambda: FrameReader(_HELLO_LIMIT))
    trusted: bool = False
    client: int = 0
    polite: bool = False
    """Said goodbye."""
    messages: list[Message] = field(default_factory=list)
    unsent: deque[memoryview] = field(default_factory=deque)


class Server:
    """Listens from construction, answers from `start` until `stop`. `journal`: of its desk."""

    def __init__(self, token: bytes, host: str, directory: str, journal: JournalFile | None = None) -> None:
        self.unix_path = os.path.join(directory, "socket")
        self.desk = Desk(self._tell, journal)
        self.desk.on("dismiss", self._dismiss)
        self._token = token
        self._connections: dict[int, _Connection] = {}
        self._touched: dict[_Connection, None] = {}
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

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question that is asked between two messages. Raises what has ended the server, if something has."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            return question()

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
            self.desk.close()
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()
            self._wake.close()

    def _ready(self, key: selectors.SelectorKey, mask: int) -> None:
        if isinstance(key.data, _Connection):
            if key.data.sock.fileno() < 0:  # dismissed in this very round
                return
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

    # ---- clients ----

    def _message(self, connection: _Connection, message: Message) -> None:
        if message[0] == "hello":
            self._welcome(connection, *message[1:])
        elif message[0] == "bye":
            connection.polite = True
        else:
            self.desk.receive(connection.client, message)

    def _welcome(self, connection: _Connection, identity: str, node: str, stores: bool) -> None:
        connection.client = self.desk.number()
        self._connections[connection.client] = connection
        self._tell(connection.client, ("welcome", connection.client))
        self.desk.join(connection.client, Guest(identity, node, stores))

    def _dismiss(self, client: int, request: int, identities: Sequence[str]) -> None:
        """Be done with processes that are known to be dead, before others come under their names."""
        for number in [number for number, guest in self.desk.guests.items() if guest.identity in identities]:
            connection = self._connections[number]
            self._read(connection)  # what it has sent counts
            if number in self._connections:
                self._lost(connection)
        self._tell(client, ("ok", request, None))

    def _lost(self, connection: _Connection) -> None:
        """The connection has ended: its process is gone, or has left."""
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._touched.pop(connection, None)
        if self._connections.pop(connection.client, None) is not None:
            self.desk.leave(connection.client, "left before it was done" if connection.polite else "died")


def keep_alive(sock: socket.socket) -> None:
    """Make a TCP connection answer at once, and notice within seconds that the other machine is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)

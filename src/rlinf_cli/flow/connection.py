"""A connection to the controller: messages out from any thread, messages in on a thread of its own, and replies."""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlinf_cli.flow.errors import (
    ChannelBrokenError,
    ChannelClosedError,
    ChannelError,
    ChannelTimeoutError,
)
from rlinf_cli.flow.frames import FrameReader, Message, pack, pack_bytes, unpack
from rlinf_cli.flow.server import keep_alive

if TYPE_CHECKING:
    from rlinf_cli.flow.controller import ControllerAddress

_FRAME_LIMIT = 1 << 40
_HANDSHAKE_SECONDS = 20.0
_ANSWERS = frozenset(("ok", "items", "leased", "fail"))
_ERRORS: dict[str, type[ChannelError]] = {
    "closed": ChannelClosedError, "full": ChannelClosedError, "broken": ChannelBrokenError,
    "timeout": ChannelTimeoutError, "refused": ChannelError,
}  # fmt: skip


def error_of(kind: str, message: str) -> ChannelError:
    return _ERRORS[kind](message)


class Reply:
    """An answer that is awaited: a value, or an error."""

    __slots__ = ("_done", "_error", "_then", "_value", "number")

    def __init__(self, number: int, then: Callable[[Any], None] | None) -> None:
        self.number = number
        self._then = then
        self._value: Any = None
        self._error: ChannelError | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def wait(self, timeout: float) -> bool:
        done = self._done.acquire(timeout=min(max(0.0, timeout), threading.TIMEOUT_MAX))
        if done:
            self._done.release()  # for whoever asks again
        return done

    def value(self) -> Any:
        """After `wait` returned True."""
        if self._error is not None:
            raise self._error
        return self._value

    def resolve(self, value: Any) -> None:
        if self._then is not None:
            self._then(value)
        self._value = value
        self._done.release()

    def fail(self, error: ChannelError) -> None:
        self._error = error
        self._done.release()


class Connection:
    """Connected and welcomed when constructed; `start` begins to receive.

    `lock` guards everything that the receiving thread and others share. `receive(message)` is called with
    it held, on the receiving thread, in the order of sending; `gather()` gives messages to go along with the next
    frame; `lost(error)` is called once when the connection has ended.
    """

    def __init__(self, address: ControllerAddress, identity: str, node: str | None, stores: bool) -> None:
        self.lock = threading.RLock()  # entered itself, not through the condition: Ctrl-C cannot leave it locked
        self.changed = threading.Condition(self.lock)
        self.failure: ChannelError | None = None
        self._sock, self.node = _open(address, node)
        self.host = address.host if self._sock.family == socket.AF_UNIX else str(self._sock.getsockname()[0])
        self._reader = FrameReader(_FRAME_LIMIT)
        self._outgoing: tuple[list[Message], bytes, list[int]] = [], b"", []
        """Messages, packed ones, and how many bytes of these are gone."""
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._replies: dict[int, Reply] = {}
        self.closing = False
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self.client = self._shake_hands(address.token, identity, stores)

    def start(self, receive: Callable[[Message], None], gather: Callable[[], list[Message]],
              lost: Callable[[ChannelError], None]) -> None:
        self._receive, self._gather, self._lost = receive, gather, lost
        self._thread = threading.Thread(target=self._run, name="rlinf-channels", daemon=True)
        self._thread.start()

    def _shake_hands(self, token: str, identity: str, stores: bool) -> int:
        self._sock.settimeout(_HANDSHAKE_SECONDS)
        try:
            self._sock.sendall(pack_bytes(token.encode()) + pack([("hello", identity, self.node, stores)]))
            welcome = [message for frame in self._reader.receive(self._sock) for message in unpack(frame)]
        except (EOFError, OSError) as error:
            self._sock.close()
            raise ChannelError(f"the controller refused {identity}: wrong token, or it is stopping") from error
        self._sock.settimeout(None)
        self._early = welcome[1:]
        client: int = welcome[0][1]
        return client

    # ---- out ----

    def push(self, message: Message) -> None:
        """Queue a message, with `lock` held; `transmit` sends it."""
        self._outgoing[0].append(message)

    def transmit(self) -> None:
        """Send what is queued, without `lock` held. Frames go out in the order in which messages were queued."""
        with self._sending:
            with self.lock:
                self._frame()
            if self.failure is None:
                with contextlib.suppress(OSError):  # the receiving thread notices, and says so to all who wait
                    self._send()

    def _frame(self) -> None:
        messages, unsent, sent = self._outgoing
        messages = messages + self._gather()
        if messages:
            # one assignment, so that a Ctrl-C before or after it neither loses nor doubles a message
            self._outgoing = [], unsent + pack(messages), sent

    def _send(self) -> None:
        messages, frame, sent = self._outgoing
        while unsent := memoryview(frame)[sum(sent) :]:
            # one call into C, so that a Ctrl-C cannot come between the sending and the noting of how much it was
            sent.extend(map(self._sock.send, (unsent,)))
        self._outgoing = messages, b"", []

    def wake(self) -> None:
        """Let the receiving thread transmit soon. Takes no lock: a finalizer may call it anywhere."""
        with contextlib.suppress(OSError):  # it is being woken already, or the connection has ended
            self._wake.send(b"x")

    def request(self, kind: str, *arguments: Any, then: Callable[[Any], None] | None = None) -> Reply:
        """Queue a request, with `lock` held. `then(value)` runs on the receiving thread before the reply is seen."""
        if self.failure is not None:
            raise self.failure
        reply = Reply(next(self._numbers), then)
        self._replies[reply.number] = reply
        self.push((kind, reply.number, *arguments))
        return reply

    def abandon(self, reply: Reply) -> None:
        """Nobody waits for it any more: `receive` gets the answer."""
        self._replies.pop(reply.number, None)

    # ---- in ----

    def _run(self) -> None:
        try:
            self._dispatch(self._early)
            poller = select.poll()
            poller.register(self._sock, select.POLLIN)
            poller.register(self._woken, select.POLLIN)
            while True:
                for descriptor, _ in poller.poll():
                    if descriptor == self._woken.fileno():
                        self._woken.recv(4096)
                    else:
                        for frame in self._reader.receive(self._sock):
                            self._dispatch(unpack(frame))
                self.transmit()
        except (EOFError, OSError):
            pass
        finally:  # whatever happens, nobody is left waiting
            self._end()

    def _dispatch(self, messages: list[Message]) -> None:
        with self.lock:
            for message in messages:
                reply = self._replies.pop(message[1], None) if message[0] in _ANSWERS else None
                if reply is None:
                    self._receive(message)
                elif message[0] == "fail":
                    reply.fail(error_of(message[2], message[3]))
                else:
                    reply.resolve(message[2])

    def _end(self) -> None:
        how = "this process has disconnected" if self.closing else "the connection to the controller is lost"
        with self.lock:
            self.failure = ChannelBrokenError(how)
            replies, self._replies = self._replies, {}
            self.changed.notify_all()
        for reply in replies.values():
            reply.fail(self.failure)
        self._lost(self.failure)
        self.release_descriptors()

    def close(self) -> None:
        """Say goodbye and disconnect."""
        self.closing = True
        with self.lock:
            self.push(("bye",))
        self.transmit()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)  # the controller reads what is left and closes
        self._thread.join(_HANDSHAKE_SECONDS)

    def release_descriptors(self) -> None:
        """Close our descriptors only; in a forked child the connection itself is its parent's."""
        for sock in (self._sock, self._wake, self._woken):
            sock.close()


def _open(address: ControllerAddress, node: str | None) -> tuple[socket.socket, str]:
    """A socket to the controller, and the name of this process's node: the controller's, when its files are here."""
    if node in (None, address.node):
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(address.unix_path)
            return sock, address.node
        except OSError as error:
            sock.close()
            if node is not None:
                raise ChannelError(f"no controller answers at {address.unix_path} on node {node}") from error
    return _open_tcp(address), node or f"{socket.gethostname()}-other"


def _open_tcp(address: ControllerAddress) -> socket.socket:
    try:
        sock = socket.create_connection((address.host, address.port), timeout=_HANDSHAKE_SECONDS)
    except OSError as error:
        raise ChannelError(f"no controller answers at {address.host}:{address.port}: {error}") from error
    keep_alive(sock)
    return sock

"""Arrays that two workers hand each other in turn, once for each action of a policy, beside the channels.

What is handed over has fixed shapes, so it lies in memory that both have: who has written says so with a byte through a socket,
which wakes the other at once and breaks when its process dies. Between nodes the arrays go through the socket too.

Those that exchange are a graph: each *caller* has links to some *listeners*. Where one link breaks, what was under way on all
links that hang together is given up, and *attempts* are counted: everybody closes, and meets again under the next number.
"""

from __future__ import annotations

import contextlib
import hmac
import mmap
import os
import pickle
import secrets
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.flow.client import client
from rlinf_cli.flow.server import keep_alive
from rlinf_cli.flow.timeline import spent

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Name -> shape and type of an array."""
Alive = Callable[[], None]
"""Called now and then by who waits; raises when nothing will come any more."""

END = 0x7F
"""Instead of a half's number: nothing follows in this step."""
_SLICE_S = 0.2
_RETRY_S = 0.05
_HANDSHAKE_S = 20.0
_ALIGNMENT = 64
_LENGTH = struct.Struct("<I")


class LinkLost(Exception):
    """The other end is gone, or has begun a new attempt."""


class Block:
    """Named arrays one after the other in a piece of memory."""

    def __init__(self, shapes: Shapes, memory: Any, offset: int = 0) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        start = offset
        for name, (shape, dtype) in shapes.items():
            count = int(np.prod(shape))
            self.arrays[name] = np.frombuffer(memory, dtype, count, start).reshape(shape)
            start = _aligned(start + count * np.dtype(dtype).itemsize)
        self.raw = memoryview(memory)[offset:start]


def size_of(shapes: Shapes) -> int:
    """Bytes of a block."""
    return sum(_aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize) for shape, dtype in shapes.values())


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


@dataclass(frozen=True, slots=True)
class Terms:
    """What a caller says of a link. `there`, `back`: for each half the arrays that go to the listener, and those that come."""

    caller: int
    attempt: int
    there: tuple[Shapes, ...]
    back: tuple[Shapes, ...]

    @property
    def size(self) -> int:
        return sum(map(size_of, (*self.there, *self.back)))


class Link:
    """One end. `out`, `into`: of each half what this end writes, and what it reads once `receive` has told of it."""

    def __init__(self, connection: socket.socket, terms: Terms, memory: Any, calls: bool, inline: bool) -> None:
        there, back = list(_blocks(terms.there, memory, 0)), list(_blocks(terms.back, memory, sum(map(size_of, terms.there))))
        self.out, self.into = (there, back) if calls else (back, there)
        self._connection, self._inline = connection, inline
        seconds = struct.pack("ll", 0, int(_SLICE_S * 1e6))
        connection.settimeout(None)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)

    def send(self, half: int) -> None:
        """What `out[half]` holds now. Raises LinkLost."""
        self._write(half, self.out[half].raw if self._inline else b"")

    def end(self) -> None:
        """Tell the other end that nothing follows in this step. Raises LinkLost."""
        self._write(END)

    def receive(self, alive: Alive) -> int:
        """The half whose `into` holds something new now, or END. Raises LinkLost, and what `alive` raises."""
        kind = self._first(alive)
        if kind != END and self._inline:
            self._fill(self.into[kind].raw)
        return kind

    def close(self) -> None:
        self._connection.close()

    def _write(self, kind: int, content: memoryview | bytes = b"") -> None:
        try:
            self._connection.sendall(b"".join((bytes((kind,)), content)))
        except OSError as error:
            raise LinkLost from error

    def _first(self, alive: Alive) -> int:
        kind = bytearray(1)
        with spent("wait_data"):
            while not self._read(memoryview(kind)):
                alive()
        return kind[0]

    def _fill(self, raw: memoryview) -> None:
        while raw:
            raw = raw[self._read(raw) :]

    def _read(self, into: memoryview) -> int:
        """Bytes that came; 0 where none do for a while."""
        try:
            count = self._connection.recv_into(into)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkLost from error
        if not count:
            raise LinkLost
        return count


def _blocks(halves: Sequence[Shapes], memory: Any, offset: int) -> Iterator[Block]:
    for shapes in halves:
        yield Block(shapes, memory, offset)
        offset += size_of(shapes)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a listener is: a Unix socket for its own node, and TCP for others."""

    node: str
    path: str
    host: str
    port: int


class Listener:
    """One a process of the listening role. `callers`: who has a link to it."""

    def __init__(self, callers: Sequence[int], elsewhere: bool) -> None:
        """`elsewhere`: whether a caller is on another node."""
        here = client()
        self._callers, self._attempt = tuple(callers), 0
        path = str(Path(here.address.directory_on(here.node)) / f"exchange-{secrets.token_hex(4)}")
        self._unix = socket.socket(socket.AF_UNIX)
        self._unix.bind(path)
        self._unix.listen(64)
        self._sockets, host, port = [self._unix], "", 0
        if elsewhere:
            host = here.host
            tcp = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
            self._sockets.append(tcp)
            port = tcp.getsockname()[1]
        for one in self._sockets:
            one.settimeout(_SLICE_S / len(self._sockets))
        self.address = Address(here.node, path, host, port)
        self._token = here.address.token.encode()

    def meet(self, alive: Alive, again: bool) -> dict[int, Link]:
        """A link to each caller; `again`: a link that there was is lost."""
        self._attempt += again
        links: dict[int, Link] = {}
        while len(links) < len(self._callers):
            met = self._accept(links)
            if met is None:
                alive()
            else:
                links |= met
        return links

    def close(self) -> None:
        for one in self._sockets:
            one.close()
        with contextlib.suppress(FileNotFoundError):  # the run's directory may be gone already
            os.unlink(self.address.path)

    def _accept(self, links: dict[int, Link]) -> dict[int, Link] | None:
        """Who calls now; {} where that comes to nothing, None where nobody does."""
        connection = self._called()
        if connection is None:
            return None
        try:
            return self._welcome(connection, links)
        except (OSError, EOFError):
            connection.close()
            return {}

    def _called(self) -> socket.socket | None:
        for one in self._sockets:
            with contextlib.suppress(TimeoutError):
                return one.accept()[0]
        return None

    def _welcome(self, connection: socket.socket, links: dict[int, Link]) -> dict[int, Link]:
        connection.settimeout(_HANDSHAKE_S)
        inline = connection.family != socket.AF_UNIX
        if not hmac.compare_digest(_read(connection), self._token):
            raise EOFError
        terms: Terms = pickle.loads(_read(connection))
        memory: Any = bytearray(terms.size) if inline else _received(connection)
        if terms.attempt > self._attempt:
            self._attempt = terms.attempt
            close_all(links)
        connection.sendall(_LENGTH.pack(self._attempt))
        if terms.attempt < self._attempt:
            raise EOFError  # it comes again, under this number
        if terms.caller in links:
            links[terms.caller].close()
        if inline:
            keep_alive(connection)
        return {terms.caller: Link(connection, terms, memory, False, inline)}


class Caller:
    """One a process of the calling role."""

    def __init__(self, rank: int) -> None:
        self._rank, self._attempt = rank, 0

    def meet(self, wanted: Mapping[int, tuple[tuple[Shapes, ...], tuple[Shapes, ...]]], address: Callable[[int], Address],
             alive: Alive, again: bool) -> dict[int, Link]:
        """A link to each listener. `wanted`: listener -> what goes there and what comes back, of each half · `address(q)`:
        where a listener is now · `again`: a link that there was is lost."""
        self._attempt += again
        links: dict[int, Link] = {}
        while len(links) < len(wanted):
            listener = next(one for one in wanted if one not in links)
            link = self._call(Terms(self._rank, self._attempt, *wanted[listener]), address(listener), alive)
            if link is None:
                alive()
                time.sleep(_RETRY_S)
            elif isinstance(link, int):
                self._attempt = link
                close_all(links)
            else:
                links[listener] = link
        return links

    def _call(self, terms: Terms, address: Address, alive: Alive) -> Link | int | None:
        """A link, or the attempt that is under way there; None where nobody answers."""
        inline = address.node != client().node
        try:
            connection = _connected(address, inline)
        except OSError:
            return None
        try:
            return self._offer(connection, terms, inline, alive)
        except (OSError, EOFError, LinkLost):
            connection.close()
            return None

    def _offer(self, connection: socket.socket, terms: Terms, inline: bool, alive: Alive) -> Link | int:
        memory: Any = bytearray(terms.size)
        for part in (client().address.token.encode(), pickle.dumps(terms)):
            connection.sendall(_LENGTH.pack(len(part)) + part)
        if not inline:
            memory = _given(connection, terms.size)
        attempt = _answer(connection, alive)
        if attempt > terms.attempt:
            connection.close()
            return attempt
        return Link(connection, terms, memory, True, inline)


def close_all(links: dict[int, Link]) -> None:
    """End these links; there are none then."""
    for link in links.values():
        link.close()
    links.clear()


def _connected(address: Address, inline: bool) -> socket.socket:
    if inline:
        connection = socket.create_connection((address.host, address.port), timeout=_HANDSHAKE_S)
        keep_alive(connection)
        return connection
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address.path)
    except OSError:
        connection.close()
        raise
    return connection


def _answer(connection: socket.socket, alive: Alive) -> int:
    """What the listener answers, as soon as it comes to it."""
    connection.settimeout(_SLICE_S)
    while True:
        try:
            found = connection.recv(_LENGTH.size)
        except TimeoutError:
            alive()
            continue
        if len(found) < _LENGTH.size:
            raise EOFError
        attempt: int = _LENGTH.unpack(found)[0]
        return attempt


def _read(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    return _exactly(connection, length)


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = connection.recv(size - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _given(connection: socket.socket, size: int) -> mmap.mmap:
    """Memory without a name, which goes with the last process that has it."""
    fd = os.memfd_create("rlinf-exchange")
    try:
        os.truncate(fd, size)
        socket.send_fds(connection, [b"\0"], [fd])
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def _received(connection: socket.socket) -> mmap.mmap:
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        raise EOFError
    memory = mmap.mmap(descriptors[0], 0)
    os.close(descriptors[0])
    return memory

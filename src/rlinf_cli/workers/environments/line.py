"""Messages between a pool and one of its processes: a kind, the half it is about, and bytes."""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import NamedTuple

_HEADER = struct.Struct("<BBI")

READY, LAYOUT, RESET, STEP, DONE, RENDER, RAISED = range(7)
"""`READY` (spaces), `DONE` and `RAISED` come from the process, the others go to it. `DONE` is the answer to each order."""


class Message(NamedTuple):
    kind: int
    half: int
    content: bytes


class Line:
    """One end. What is sent to an end that is gone is lost, which its own silence tells."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def send(self, kind: int, half: int = 0, content: bytes = b"") -> None:
        """Raises OSError when the other end is gone."""
        self.connection.sendall(_HEADER.pack(kind, half, len(content)) + content)

    def receive(self) -> Message | None:
        """The next message; None when no more can come."""
        header = self._exactly(_HEADER.size)
        if header is None:
            return None
        kind, half, length = _HEADER.unpack(header)
        content = self._exactly(length) if length else b""
        return None if content is None else Message(kind, half, content)

    def send_memory(self, fd: int) -> None:
        """Give the other process a descriptor of shared memory. Raises OSError when it is gone."""
        socket.send_fds(self.connection, [b"\0"], [fd])

    def receive_memory(self) -> mmap.mmap | None:
        """What `send_memory` gave; None when no more can come."""
        _, descriptors, _, _ = socket.recv_fds(self.connection, 1, 1)
        if not descriptors:
            return None
        memory = mmap.mmap(descriptors[0], 0)
        os.close(descriptors[0])
        return memory

    def _exactly(self, size: int) -> bytes | None:
        try:
            found = self.connection.recv(size)
            while found and len(found) < size:
                more = self.connection.recv(size - len(found))
                found = found + more if more else b""
        except ConnectionError:
            return None
        return found or None

"""A process of a pool: takes payloads, gives what the functions make of them, one answer a function.

Messages both ways are pickles, each after its length in 4 bytes. The first one to come is a callable that makes the
functions; what goes back is their number, and then a value of each function in turn, up to the first that raises: all
as `(kind, value or message, traceback)`.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import socket
import struct
import traceback
from typing import Any, BinaryIO

VALUE, RAISED = "value", "raised"
LENGTH = struct.Struct("!I")

LONGEST = 500
"""Characters of an exception's message that are told."""
_LONGEST_DETAIL = 8000

Answer = tuple[str, Any, str]


def serve(descriptor: int) -> None:
    """Until the other end closes."""
    faulthandler.enable()
    os.set_inheritable(descriptor, False)
    connection, me = socket.socket(fileno=descriptor), os.getpid()
    requests = connection.makefile("rb")
    functions: list[Any] = []

    def set_up(make: Any) -> int:
        functions.extend(make())
        return len(functions)

    is_good, content = _answer(set_up, _read(requests))
    _send(connection, me, content)
    while is_good and (payload := _read(requests)):
        for function in functions:
            good, content = _answer(function, payload)
            _send(connection, me, content)
            if not good:
                break


def _answer(function: Any, payload: bytes) -> tuple[bool, bytes]:
    """What the function makes of the payload. Whatever it raises, a SystemExit too, is an answer."""
    try:
        return True, pickle.dumps((VALUE, function(pickle.loads(payload)), ""))
    except BaseException as error:
        return False, pickle.dumps((RAISED, summary(error), traceback.format_exc()[-_LONGEST_DETAIL:]))


def summary(error: BaseException) -> str:
    """The exception in a line that is not too long."""
    text = " ".join(f"{type(error).__name__}: {_text(error)}".split()).removesuffix(":")
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as another:  # a user's class may say what it likes
        return f"(its message raised {type(another).__name__})"


def _send(connection: socket.socket, me: int, content: bytes) -> None:
    if os.getpid() != me:  # the function forked, and this is the copy, which has nothing to say
        os._exit(0)
    try:
        connection.sendall(LENGTH.pack(len(content)) + content)
    except OSError:  # the process is of no more use
        os.write(2, b"the function closed the descriptor that its results leave by\n")
        os._exit(1)


def _read(requests: BinaryIO) -> bytes:
    """The next message; empty when no more will come."""
    head = requests.read(LENGTH.size)
    return requests.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else b""

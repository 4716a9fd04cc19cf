"""Items and messages as bytes.

An item is pickled (protocol 5) into a *stream*; its large buffers (NumPy arrays, torch CPU tensors) stay outside it,
and large bytes objects are handed through without a copy. A *frame* is a list of messages with its length before it.
"""

from __future__ import annotations

import copyreg
import pickle
import socket
import struct
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlinf_cli.flow.errors import SerializationError

LARGE = 64 * 1024
"""Bytes from which a buffer or a stream travels in shared memory. Costs meet at 32 KiB, and at 128 KiB messages are two
to three times slower. No more than 64 KiB: what is larger, pickle hands to `write` as it is, and that must be bytes."""

Bytes = bytes | bytearray | memoryview
Message = tuple[Any, ...]


# ---- items ----


@dataclass(slots=True)
class Pickled:
    """An item as bytes: the stream in pieces, and the large buffers outside of it."""

    pieces: list[Bytes]
    buffers: list[pickle.PickleBuffer]
    stream_size: int
    size: int
    """Bytes of stream and buffers together."""

    def stream(self) -> bytes:
        return self.pieces[0] if len(self.pieces) == 1 and isinstance(self.pieces[0], bytes) else b"".join(self.pieces)


class _Pieces(list[Bytes]):
    """A file for the pickler that keeps what is written, large bytes objects as they are."""

    write = list.append


class TensorBytes(np.ndarray[Any, np.dtype[np.uint8]]):
    """The bytes of a torch tensor. Marks buffers whose reader may write to them: torch knows no read-only tensor."""


def dump(item: object) -> Pickled:
    """Pickle an item. Raises SerializationError, naming the type, when that fails in whatever way."""
    pieces = _Pieces()
    buffers: list[pickle.PickleBuffer] = []

    def small(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < LARGE:
            return True
        buffers.append(buffer)
        return False

    pickler = pickle.Pickler(pieces, 5, buffer_callback=small)
    if "torch" in sys.modules:
        pickler.dispatch_table = _reducers()
    try:
        pickler.dump(item)
    except Exception as error:  # a __reduce__ or __getstate__ may raise anything
        raise SerializationError(f"an item of type {type(item).__qualname__} cannot be sent: {error}") from error
    stream_size = sum(map(len, pieces))
    return Pickled(pieces, buffers, stream_size, stream_size + sum(buffer.raw().nbytes for buffer in buffers))


def load(stream: Bytes, buffers: Sequence[Bytes]) -> Any:
    """The item again. Arrays and tensors that were outside the stream are views of `buffers`."""
    return pickle.loads(stream, buffers=buffers)


class _Reducers(dict[type, Callable[[Any], Any]]):
    """Tensors are reduced our way, everything else as `copyreg` says."""

    def __missing__(self, cls: type) -> Callable[[Any], Any]:
        return copyreg.dispatch_table[cls]


_table = _Reducers()


def _reducers() -> _Reducers:
    tensor = getattr(sys.modules["torch"], "Tensor", None)  # None while another thread imports torch
    if tensor is not None and tensor not in _table:
        _table[tensor] = _reduce_tensor
    return _table


def _reduce_tensor(tensor: Any) -> Any:
    import torch

    if tensor.device.type != "cpu" or tensor.layout != torch.strided or tensor.is_quantized:
        return tensor.__reduce_ex__(5)
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError("a tensor that has a gradient history cannot leave its process: detach() it")
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().view(TensorBytes) if plain.numel() else b""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return _rebuild_tensor, (pickle.PickleBuffer(data), dtype, tuple(tensor.shape), tensor.requires_grad)


def _rebuild_tensor(data: Bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if memoryview(data).nbytes == 0:
        return torch.empty(shape, dtype=kind, requires_grad=requires_grad)
    writable = bytearray(data) if memoryview(data).readonly else data
    return torch.frombuffer(writable, dtype=kind).reshape(shape).requires_grad_(requires_grad)


def is_tensor(buffer: pickle.PickleBuffer) -> bool:
    return isinstance(buffer.raw().obj, TensorBytes)


# ---- messages ----

_LENGTH = struct.Struct("<Q")
_CHUNK = 256 * 1024


class FrameError(Exception):
    """The other side does not speak this protocol."""


def pack(messages: list[Message]) -> bytes:
    return pack_bytes(pickle.dumps(messages, 5))


def pack_bytes(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def unpack(frame: memoryview) -> list[Message]:
    messages: list[Message] = pickle.loads(frame)
    return messages


class FrameReader:
    """Cuts what a socket receives into frames. `limit`: the longest frame that is let in, bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray(_CHUNK)
        self._filled = 0

    def receive(self, sock: socket.socket) -> Iterator[memoryview]:
        """Receive once and yield each complete frame, valid until the next one is asked for.

        Raises EOFError when the other side has closed, FrameError when a frame exceeds the limit.
        """
        with memoryview(self._buffer) as view:
            count = sock.recv_into(view[self._filled :])
        if not count:
            raise EOFError
        self._filled += count
        start = yield from self._frames()
        self._keep(start)

    def _frames(self) -> Generator[memoryview, None, int]:
        start = 0
        with memoryview(self._buffer) as view:
            while (end := self._end(start)) is not None and end <= self._filled:
                yield view[start + _LENGTH.size : end]
                start = end
        return start

    def _end(self, start: int) -> int | None:
        """Where the frame that begins at `start` ends, as soon as its length is known."""
        if self._filled - start < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, start)
        if length > self.limit:
            raise FrameError(f"a frame of {length} bytes where {self.limit} are allowed")
        return start + _LENGTH.size + int(length)

    def _keep(self, start: int) -> None:
        """Move the rest to the front, in a buffer large enough for the frame that it begins."""
        end = self._end(start)
        need = max(_CHUNK, 0 if end is None else end - start)
        if start == 0 and need == len(self._buffer):
            return
        rest = self._buffer[start : self._filled]
        if need != len(self._buffer):
            self._buffer = bytearray(need)
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)

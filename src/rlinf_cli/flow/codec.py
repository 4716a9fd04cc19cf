"""Items to payloads and back: small ones inside the message, large ones in shared memory, foreign ones fetched."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.frames import LARGE, Pickled, dump, load
from rlinf_cli.flow.outbox import Payload
from rlinf_cli.flow.segments import Array, Mappings, NoSpaceError, SegmentPool, Slot, layout, views
from rlinf_cli.state.slots import SlotId

Reader = Callable[[str, int, int], Array]
"""`reader(file, offset, length)`: bytes of a shared-memory file of another node."""


class Codec:
    """Of one process. `wake()` is called when a slot is released, at any point of any thread."""

    def __init__(self, node: str, directory: str, client: int, pool_bytes: int, wake: Callable[[], None]) -> None:
        self.node, self._wake = node, wake
        self.pool = SegmentPool(directory, client, pool_bytes)
        self.mappings = Mappings(directory, self.release)
        self.node_stores: dict[str, Reader] = {}
        self._released: deque[SlotId] = deque()
        self._warned = False

    def encode(self, item: object, deadline: float) -> tuple[Payload, int, int]:
        """The payload, the bytes of it in the message, and the bytes of the item. May wait for shared memory."""
        pickled = dump(item)
        if pickled.stream_size < LARGE and not pickled.buffers:
            return (pickled.stream(), (), None), pickled.stream_size, pickled.size
        try:
            payload = self._write(pickled, deadline)
        except NoSpaceError as error:
            self._warn(error)
            buffers = tuple(bytes(buffer.raw()) for buffer in pickled.buffers)
            return (pickled.stream(), buffers, None), pickled.size, pickled.size
        return payload, len(payload[0] or b""), pickled.size

    def _write(self, pickled: Pickled, deadline: float) -> Payload:
        outside = pickled.stream_size >= LARGE
        used, stream, spans = layout(pickled, outside)
        slot = self.pool.acquire(used, deadline - time.monotonic())
        for span, buffer in zip(spans, pickled.buffers, strict=True):
            self.pool.write(slot, span, [buffer.raw()])
        if stream is not None:
            self.pool.write(slot, stream, pickled.pieces)
        return (None if outside else pickled.stream()), (), Slot(self.node, slot, used, stream, spans)

    def _warn(self, error: NoSpaceError) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"large items travel through the controller, slowly: {error}", RuntimeWarning, stacklevel=2)

    def take_back(self, payload: Payload) -> None:
        """The payload was not put after all."""
        if payload[2] is not None:
            self.pool.give_back([payload[2].id])

    def decode(self, payload: Payload) -> Any:
        stream, buffers, slot = payload
        if slot is None:
            return load(stream, buffers)
        outside, parts = self.mappings.open(slot) if slot.node == self.node else views(self._fetch(slot), slot)
        return load(stream if outside is None else outside, parts)

    def decode_all(self, payloads: Sequence[Payload]) -> list[Any]:
        """Raises ChannelError when one cannot be rebuilt here; the others are lost with it."""
        items: list[Any] = []
        try:
            for payload in payloads:
                items.append(self.decode(payload))  # noqa: PERF401
        except Exception as error:  # a __setstate__, or a class that is missing here, may raise anything
            self.discard(payloads[len(items) + 1 :])
            if isinstance(error, ChannelError):
                raise
            raise ChannelError(f"an item cannot be rebuilt in this process: {error}") from error
        return items

    def _fetch(self, slot: Slot) -> Array:
        """The bytes of a slot of another node; they are copied, so the slot is free again."""
        array = self.node_store(slot.node)(slot.id.file, slot.id.offset, slot.used)
        self.release(slot.id)
        return array

    def node_store(self, node: str) -> Reader:
        """What reads the shared memory of another node."""
        reader = self.node_stores.get(node)
        if reader is None:
            raise ChannelError(f"node {self.node} has no reader for node {node}: register_node_store first")
        return reader

    def discard(self, payloads: Sequence[Payload]) -> None:
        """Nobody will decode these."""
        for _, _, slot in payloads:
            if slot is not None:
                self.release(slot.id)

    def release(self, slot: SlotId) -> None:
        """Nobody reads the slot any more. Called by garbage collection, too: no lock is taken."""
        self._released.append(slot)
        self._wake()

    def take_released(self) -> list[SlotId]:
        return [self._released.popleft() for _ in range(len(self._released))]

"""What a process has put into one channel and the controller has not accepted yet.

Puts coalesce by themselves: one is sent at once when nothing is on its way, otherwise it waits for the answer to those
that are, or until a frame's worth has gathered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from rlinf_cli.flow.frames import Message

_FRAME_BYTES = 64 * 1024
_WINDOW_ITEMS = 8192
_WINDOW_BYTES = 8 * 1024 * 1024

Payload = tuple[Any, ...]
"""(stream or None, buffers that travel in the message, Slot or None)."""
Row = tuple[int, float, Any, int, Payload]
"""An item in a message: number, weight, key, size, payload."""


class Outbox:
    """Every method is called with the client's lock held; `push` gives a message to its connection."""

    def __init__(self, channel: str, push: Callable[[Message], None]) -> None:
        self.channel, self._push = channel, push
        self.refusal: tuple[str, str] | None = None
        """Why puts were refused (kind and text); every later put fails with it, too."""
        self.unreported = False
        self._queue: list[Row] = []
        self._queued_bytes = 0
        self._pending: deque[tuple[int, int]] = deque()
        """Number, and bytes within its message, of each item that is neither accepted nor refused."""
        self._pending_bytes = 0
        self._window = _WINDOW_ITEMS

    @property
    def pending(self) -> int:
        return len(self._pending)

    def settled(self, last: int) -> bool:
        """Whether the items up to number `last` are accepted or refused."""
        return not self._pending or self._pending[0][0] > last

    def has_room(self, inline: int) -> bool:
        """Whether an item with `inline` bytes in its message may be added."""
        if not self._pending:
            return True
        return len(self._pending) < self._window and self._pending_bytes + inline <= _WINDOW_BYTES

    def add(self, row: Row, inline: int, now: bool) -> bool:
        """Queue an item and send what is due (`now`: in any case); whether something was sent."""
        self._queue.append(row)
        self._queued_bytes += inline
        self._pending.append((row[0], inline))
        self._pending_bytes += inline
        return (now or self._due()) and self.send()

    def _due(self) -> bool:
        return len(self._queue) == len(self._pending) or self._queued_bytes >= _FRAME_BYTES

    def send(self) -> bool:
        if not self._queue:
            return False
        self._push(("put", self.channel, self._queue))
        self._queue, self._queued_bytes = [], 0
        return True

    def accepted(self, count: int, capacity: int) -> None:
        """The first `count` pending items are in the channel. What a bounded channel holds bounds what is pending."""
        self._window = min(capacity or _WINDOW_ITEMS, _WINDOW_ITEMS)
        for _ in range(count):
            self._pending_bytes -= self._pending.popleft()[1]
        if self._due():
            self.send()

    def refused(self, numbers: Collection[int], kind: str, text: str) -> None:
        if self.refusal is None:
            self.refusal, self.unreported = (kind, text), True
        self.forget(numbers)
        self.send()  # what is queued is refused, too, and its shared memory comes back

    def forget(self, numbers: Collection[int]) -> None:
        gone = set(numbers)
        self._pending = deque(entry for entry in self._pending if entry[0] not in gone)
        self._pending_bytes = sum(size for _, size in self._pending)

    def reset(self) -> None:
        """The channel was dropped: what its puts have met is past."""
        self.refusal, self.unreported = None, False

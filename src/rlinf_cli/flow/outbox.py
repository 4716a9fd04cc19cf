"""What a process has put into one channel and the controller has not accepted yet.

Puts coalesce by themselves: one is sent at once when nothing is on its way, otherwise it waits for the answer to those
that are, or until a frame's worth has gathered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from rlinf_cli.flow.frames import Message
from rlinf_cli.state.channel_events import LeaseId

_FRAME_BYTES = 64 * 1024
_WINDOW_ITEMS = 8192
_WINDOW_BYTES = 8 * 1024 * 1024

Payload = tuple[Any, ...]
"""(stream or None, buffers that travel in the message, Slot or None)."""
Row = tuple[int, float, Any, int, Payload, tuple[LeaseId, ...]]
"""An item in a message: number, weight, key, size, payload, and the leases that end when it is accepted."""


class Outbox:
    """Every method is called with the client's lock held; `push` gives a message to its connection."""

    def __init__(self, channel: str, push: Callable[[Message], None]) -> None:
        self.channel, self._push = channel, push
        self.refusal: tuple[str, str] | None = None
        """Why puts were refused (kind and text); every later put fails with it, too."""
        self.unreported = False
        """Whether nobody has been told of the refusal who should be: that a limit was reached, only later puts are told."""
        self._queue: list[Row] = []
        self._queued_bytes = 0
        self._pending: deque[tuple[int, int, Sequence[LeaseId]]] = deque()
        """Number, bytes within its message, and leases of each item that is neither accepted nor refused."""
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
        # no calls in here: a Ctrl-C can only come where one ends, and an item that is queued and not pending is one too many
        self._queue += [row]
        self._queued_bytes += inline
        self._pending += [(row[0], inline, row[5])]
        self._pending_bytes += inline
        return (now or self._due()) and self.send()

    def _due(self) -> bool:
        return len(self._queue) == len(self._pending) or self._queued_bytes >= _FRAME_BYTES

    def send(self) -> bool:
        if not self._queue:
            return False
        rows: list[Row] = []
        self._push(("put", self.channel, rows))
        # no calls from here on, as in `add`: a Ctrl-C before this leaves a message without items, and none is sent twice
        rows[:] = self._queue
        self._queue, self._queued_bytes = [], 0
        return True

    def accepted(self, count: int, capacity: int) -> list[LeaseId]:
        """The first `count` pending items are in the channel; the leases that have ended with it. What a bounded channel holds
        bounds what is pending."""
        self._window = min(capacity or _WINDOW_ITEMS, _WINDOW_ITEMS)
        ended: list[LeaseId] = []
        for _ in range(count):
            _, inline, leases = self._pending.popleft()
            self._pending_bytes -= inline
            if leases:
                ended += leases
        if self._due():
            self.send()
        return ended

    def refused(self, numbers: Collection[int], kind: str, text: str) -> list[LeaseId]:
        """As `forget`."""
        if self.refusal is None:
            self.refusal, self.unreported = (kind, text), kind != "full"
        leases = self.forget(numbers)
        self.send()  # what is queued is refused, too, and its shared memory comes back
        return leases

    def forget(self, numbers: Collection[int]) -> list[LeaseId]:
        """These items will not be in the channel; the leases that stay open for it."""
        gone = set(numbers)
        leases = [lease for number, _, leases in self._pending if number in gone for lease in leases]
        self._pending = deque(entry for entry in self._pending if entry[0] not in gone)
        self._pending_bytes = sum(size for _, size, _ in self._pending)
        return leases

    def reset(self) -> None:
        """The channel was dropped: what its puts have met is past."""
        self.refusal, self.unreported = None, False

"""The leases of a process: which it has taken, in which thread, and how they end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rlinf_cli.flow.connection import Connection
from rlinf_cli.state.channel_events import LeaseId


@dataclass(slots=True)
class _Entry:
    thread: int
    promised: bool = False
    """What settles it is under way."""


class Leases:
    """`send_results()` sends what was put and is not sent yet: results come before the word that nothing is left to do.

    A lease is a thread's that took it, until it is known to be settled. Ended leases are skipped where nothing else is said.
    """

    def __init__(self, connection: Connection, send_results: Callable[[], None]) -> None:
        self._connection, self._send_results = connection, send_results
        self._entries: dict[LeaseId, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def settle(self, leases: Sequence[LeaseId]) -> None:
        """The items are done with. Raises ValueError when one has been settled or given back before."""
        if leases:
            with self._connection.lock:
                self._promise(leases)
                self._end("settle", leases)
            self._connection.transmit()

    def give_back(self, leases: Sequence[LeaseId]) -> None:
        """The items are for others again."""
        if leases:
            with self._connection.lock:
                self._end("give_back", leases)
            self._connection.transmit()

    def of_this_thread(self) -> list[LeaseId]:
        thread = threading.get_ident()
        with self._connection.lock:
            return [lease for lease, entry in self._entries.items() if entry.thread == thread]

    @contextlib.contextmanager
    def promised(self, leases: Sequence[LeaseId]) -> Iterator[None]:
        """What is put inside settles them. Raises ValueError when one has been settled or given back before."""
        with self._connection.lock:
            self._promise(leases)
        try:
            yield
        except BaseException:
            with self._connection.lock:
                self.restored(leases)
            raise

    # ---- with the lock held ----

    def taken(self, channel: str, numbers: Iterable[int], thread: int) -> None:
        for number in numbers:
            self._entries[LeaseId(channel, number)] = _Entry(thread)

    def unwanted(self, channel: str, numbers: Sequence[int]) -> None:
        """Nobody waits for these any more; they go with the next frame."""
        self._end("give_back", [LeaseId(channel, number) for number in numbers])

    def restored(self, leases: Iterable[LeaseId]) -> None:
        """What was to settle them will not."""
        for lease in leases:
            if lease in self._entries:
                self._entries[lease].promised = False

    def ended(self, leases: Iterable[LeaseId]) -> None:
        for lease in leases:
            self._entries.pop(lease, None)

    def _promise(self, leases: Sequence[LeaseId]) -> None:
        for lease in leases:
            entry = self._entries.get(lease)
            if entry is None or entry.promised:
                raise ValueError(f"lease {lease.number} of channel '{lease.channel}' has been settled or given back before, or "
                                 "is another process's")
        for lease in leases:
            self._entries[lease].promised = True

    def _end(self, kind: str, leases: Sequence[LeaseId]) -> None:
        self.ended(leases)
        self._send_results()
        numbers: dict[str, list[int]] = {}
        for lease in leases:
            numbers.setdefault(lease.channel, []).append(lease.number)
        for channel, theirs in numbers.items():
            self._connection.push((kind, channel, tuple(theirs)))

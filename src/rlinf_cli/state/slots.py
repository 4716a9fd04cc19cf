"""Who holds which slot of shared memory: a pure ledger, so that nothing is freed too early or kept for ever.

A slot belongs to the client that wrote it. From its put until its release it is *live*; then it goes back to its owner,
or, when the owner is gone, its file is removed once no slot of it is live.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple


class SlotId(NamedTuple):
    """`owner`: client number · `file`: name in the owner's node's directory · `offset`: bytes."""

    owner: int
    file: str
    offset: int


class Removed(NamedTuple):
    node: str
    owner: int
    file: str


@dataclass(slots=True)
class Freed:
    """What is to be done: slots that go back to their owners, and files that nobody needs any more."""

    returned: dict[int, list[SlotId]] = field(default_factory=dict)
    removed: list[Removed] = field(default_factory=list)


@dataclass(slots=True)
class _Owner:
    node: str
    present: bool = True
    live: Counter[str] = field(default_factory=Counter)
    """Live slots of each file."""


class SlotLedger:
    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}
        self._holders: dict[SlotId, int | None] = {}
        self._readers: dict[tuple[int, str], set[int]] = {}

    def __len__(self) -> int:
        """Live slots."""
        return len(self._holders)

    def join(self, client: int, node: str) -> None:
        self._owners[client] = _Owner(node)

    def put(self, slot: SlotId) -> None:
        """The slot now carries an item that waits in a channel."""
        assert slot not in self._holders, f"{slot} was put twice"
        self._holders[slot] = None
        self._owners[slot.owner].live[slot.file] += 1

    def deliver(self, slot: SlotId, client: int) -> None:
        self._holders[slot] = client
        self._readers.setdefault((slot.owner, slot.file), set()).add(client)

    def release(self, slots: Iterable[SlotId]) -> Freed:
        """Nobody reads these any more (a slot released before, because its holder was taken for dead, is skipped)."""
        freed = Freed()
        for slot in slots:
            if slot in self._holders:
                del self._holders[slot]
                self._free(slot, freed)
        return freed

    def gone(self, client: int) -> Freed:
        """A client's process is gone: what it held is free, what it owned is removed as soon as nobody needs it."""
        owner = self._owners[client]
        freed = self.release([slot for slot, holder in self._holders.items() if holder == client])
        freed.returned.pop(client, None)
        owner.present = False
        for readers in self._readers.values():
            readers.discard(client)
        freed.removed += [Removed(owner.node, client, file) for of, file in self._readers
                          if of == client and file not in owner.live]
        if not owner.live:
            del self._owners[client]
        return freed

    def files_in_use(self, owner: int) -> frozenset[str]:
        """Files of this owner that have a live slot."""
        return frozenset(self._owners[owner].live) if owner in self._owners else frozenset()

    def readers(self, owner: int, file: str) -> set[int]:
        """Forget the file, and return the clients that may have mapped it."""
        return self._readers.pop((owner, file), set())

    def _free(self, slot: SlotId, freed: Freed) -> None:
        owner = self._owners[slot.owner]
        owner.live[slot.file] -= 1
        if not owner.live[slot.file]:
            del owner.live[slot.file]
        if owner.present:
            freed.returned.setdefault(slot.owner, []).append(slot)
        elif slot.file not in owner.live:
            freed.removed.append(Removed(owner.node, slot.owner, slot.file))
            if not owner.live:
                del self._owners[slot.owner]

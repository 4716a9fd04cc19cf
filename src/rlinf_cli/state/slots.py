"""Who holds which slot of shared memory: a pure ledger, so that nothing is freed too early or kept for ever.

A slot belongs to the client that wrote it. It is *live* from its put on, as long as its channel keeps it (its item waits, or
is leased and may be delivered again) or somebody reads it; then it goes back to its owner, or, when the owner is gone, its
file is removed once no slot of it is live.
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


@dataclass(slots=True)
class _Use:
    kept: bool = True
    """By its channel."""
    readers: list[int] = field(default_factory=list)
    """Clients; one to which the item was delivered twice is in here twice."""


class SlotLedger:
    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}
        self._uses: dict[SlotId, _Use] = {}
        self._readers: dict[tuple[int, str], set[int]] = {}

    def __len__(self) -> int:
        """Live slots."""
        return len(self._uses)

    def join(self, client: int, node: str) -> None:
        self._owners[client] = _Owner(node)

    def put(self, slot: SlotId) -> None:
        """The slot now carries an item that waits in a channel."""
        assert slot not in self._uses, f"{slot} was put twice"
        self._uses[slot] = _Use()
        self._owners[slot.owner].live[slot.file] += 1

    def deliver(self, slot: SlotId, client: int, kept: bool = False) -> None:
        """The client reads the slot. `kept`: the item is only leased."""
        use = self._uses[slot]
        use.kept = kept
        use.readers.append(client)
        self._readers.setdefault((slot.owner, slot.file), set()).add(client)

    def let_go(self, slots: Iterable[SlotId]) -> Freed:
        """Their channels do not keep these any more: nobody will get their items again."""
        freed = Freed()
        for slot in slots:
            self._uses[slot].kept = False
            self._free_if_unused(slot, freed)
        return freed

    def release(self, client: int, slots: Iterable[SlotId]) -> Freed:
        """The client does not read these any more (one that was taken for dead may say so of slots that are others' now)."""
        freed = Freed()
        for slot in slots:
            use = self._uses.get(slot)
            if use is not None and client in use.readers:
                use.readers.remove(client)
                self._free_if_unused(slot, freed)
        return freed

    def gone(self, client: int) -> Freed:
        """A client's process is gone: what only it needed is free, what it owned is removed as soon as nobody needs it."""
        owner = self._owners[client]
        freed = Freed()
        for slot in [slot for slot, use in self._uses.items() if client in use.readers]:
            use = self._uses[slot]
            use.readers = [reader for reader in use.readers if reader != client]
            self._free_if_unused(slot, freed)
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

    def _free_if_unused(self, slot: SlotId, freed: Freed) -> None:
        use = self._uses[slot]
        if not use.kept and not use.readers:
            del self._uses[slot]
            self._free(slot, freed)

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

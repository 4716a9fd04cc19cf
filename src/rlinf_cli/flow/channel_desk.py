"""The channels behind the controller's desk, with the shared memory that their items lie in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rlinf_cli.flow.desk import Desk, Guest, Service
from rlinf_cli.flow.segments import Slot, remove_file, remove_files_of
from rlinf_cli.state.channel import ChannelsState
from rlinf_cli.state.channel_events import (
    Accept,
    Break,
    Cancel,
    CancelAll,
    Close,
    Confirm,
    Create,
    Declare,
    Deliver,
    Done,
    Drop,
    Fail,
    Get,
    GiveBack,
    Gone,
    Instruction,
    Item,
    Join,
    Lend,
    Limit,
    Put,
    Refuse,
    Release,
    Settle,
    TellFull,
    Withdraw,
)
from rlinf_cli.state.slots import Freed, SlotId, SlotLedger


class ChannelDesk:
    """`node`: the controller's, whose shared-memory files are in `directory`."""

    def __init__(self, desk: Desk, directory: str, node: str) -> None:
        self._desk, self._directory, self._node = desk, directory, node
        self._state, self._ledger = ChannelsState(), SlotLedger()
        self._service = Service("channels", self._state, self._join, self._gone, self._execute, {
            "get": Get, "cancel": Cancel, "create": Create, "declare": Declare, "done": Done, "close": Close, "break": Break,
            "drop": Drop, "withdraw": Withdraw, "settle": Settle, "give_back": GiveBack, "limit": Limit,
        })  # fmt: skip
        desk.register(self._service)
        for kind, handler in (("put", self._on_put), ("qsize", self._on_qsize), ("flowed", self._on_flowed),
                              ("cancel_all", self._on_cancel_all), ("release", self._on_release), ("removed", self._on_removed)):
            desk.on(kind, handler)

    def stats(self) -> Mapping[str, Any]:
        channels = {
            name: {"put": channel.tally.put, "delivered": channel.tally.delivered, "waiting": channel.count,
                   "offered": len(channel.offered), "leased": len(channel.leased), "dropped": channel.tally.dropped.total()}
            for name, channel in self._state.channels.items()}
        return {"channels": channels, "slots": len(self._ledger)}

    # ---- clients ----

    def _join(self, client: int, identity: str) -> Join:
        self._ledger.join(client, self._desk.guests[client].node)
        if self._state.cancelled is not None:
            self._desk.tell(client, ("cancelled", self._state.cancelled))
        return Join(client, identity)

    def _gone(self, client: int, how: str) -> Gone:
        self._freed(self._ledger.gone(client))
        self._sweep(client, self._desk.guests[client], self._ledger.files_in_use(client))
        return Gone(client, how)

    # ---- messages that are more than an event ----

    def _on_put(self, client: int, channel: str, rows: list[tuple[Any, ...]]) -> None:
        items = tuple([Item(client, *row) for row in rows])
        for slot in _slots(items):
            self._ledger.put(slot.id)
        self._desk.handle(self._service, Put(client, channel, items))

    def _on_qsize(self, client: int, request: int, channel: str) -> None:
        self._desk.tell(client, ("ok", request, self._state.waiting(channel)))

    def _on_flowed(self, client: int, request: int, channel: str) -> None:
        found = self._state.channels.get(channel)
        self._desk.tell(client, ("ok", request, (dict(found.tally.puts), dict(found.tally.takes)) if found else ({}, {})))

    def _on_cancel_all(self, client: int, request: int, reason: str) -> None:
        self._desk.handle(self._service, CancelAll(reason))
        for other in self._desk.guests:
            self._desk.tell(other, ("cancelled", reason))
        self._desk.tell(client, ("ok", request, 0))

    def _on_release(self, client: int, slots: list[SlotId]) -> None:
        self._freed(self._ledger.release(client, slots))

    def _on_removed(self, client: int, files: list[str]) -> None:
        for file in files:
            self._forget(client, file)

    # ---- instructions ----

    def _execute(self, instruction: Instruction) -> None:
        tell = self._desk.tell
        match instruction:
            case Accept(client, channel, count, window):
                tell(client, ("accept", channel, count, window))
            case Refuse(client, channel, numbers, kind, message):
                tell(client, ("refuse", channel, numbers, kind, message))
            case Deliver(client, request, items):
                for slot in _slots(items):
                    self._ledger.deliver(slot.id, client)
                tell(client, ("items", request, [item.payload for item in items]))
            case Lend(client, request, channel, items, leases):
                for slot in _slots(items):
                    self._ledger.deliver(slot.id, client, kept=True)
                tell(client, ("leased", request, [(item.payload, lease) for item, lease in zip(items, leases)], channel))
            case Confirm(client, request, value):
                tell(client, ("ok", request, value))
            case Fail(client, request, kind, message):
                tell(client, ("fail", request, kind, message))
            case Release(items, _):
                self._freed(self._ledger.let_go([slot.id for slot in _slots(items)]))
            case TellFull(client, channel, full):
                tell(client, ("full", channel, full))

    def _freed(self, freed: Freed) -> None:
        for owner, slots in freed.returned.items():
            self._desk.tell(owner, ("returned", slots))
        for removed in freed.removed:
            self._forget(removed.owner, removed.file)
            if removed.node == self._node:
                remove_file(self._directory, removed.file)
            for client in self._stores(removed.node):
                self._desk.tell(client, ("remove", [removed.file]))

    def _forget(self, owner: int, file: str) -> None:
        for client in self._ledger.readers(owner, file):
            self._desk.tell(client, ("forget", [file]))

    def _sweep(self, client: int, guest: Guest, keep: frozenset[str]) -> None:
        """Remove the files of a client that is gone, but for those that somebody still reads."""
        if guest.node == self._node:
            remove_files_of(self._directory, client, keep)
        for store in self._stores(guest.node):
            self._desk.tell(store, ("sweep", client, keep))

    def _stores(self, node: str) -> list[int]:
        return [client for client, guest in self._desk.guests.items() if guest.stores and guest.node == node]


def _slots(items: Iterable[Item]) -> list[Slot]:
    """Where those items lie that are in shared memory."""
    return [item.payload[2] for item in items if item.payload[2] is not None]  # type: ignore[index]

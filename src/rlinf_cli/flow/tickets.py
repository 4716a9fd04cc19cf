"""The driver's part of the device lock: who shares devices, and in which order the calls that need them were issued."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from rlinf_cli.flow.channel import Channel
from rlinf_cli.flow.client import Client
from rlinf_cli.flow.errors import ChannelError
from rlinf_cli.flow.worker import MethodSpec

if TYPE_CHECKING:
    from rlinf_cli.flow.group import Group


class Tickets:
    """Of a cluster. Where no two groups share a device there are no tickets, and nothing is sent but who there is."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._devices: dict[str, frozenset[int]] = {}
        """Of the groups that compute on devices."""
        self._sharing: frozenset[str] = frozenset()
        """Groups that share one with another group."""
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def enrol(self, group: Group) -> None:
        """The group is launched, or a rank of it has moved."""
        group.tickets = self
        if any(spec.on_device for spec in group.methods.values()):
            ranks = {rank: group.seats[rank].devices for rank in group.alive}
            self._client.send("lock.enrol", group.role, ranks, group.seats[0].process)
            self._devices[group.role] = frozenset(itertools.chain(*ranks.values()))
            self._look()

    def dismiss(self, role: str) -> None:
        """The group is about to be ended."""
        if self._devices.pop(role, None) is not None:
            self._look()
            with suppress(ChannelError):  # the controller has ended before
                self._client.send("lock.dismiss", role)

    def retire(self, role: str, rank: int) -> None:
        """The rank does not come back."""
        if role in self._devices:
            with suppress(ChannelError):  # the controller has ended before
                self._client.send("lock.retire", role, rank)

    @contextmanager
    def issued(self, role: str, spec: MethodSpec, ranks: Sequence[int], arguments: Mapping[str, Any]) -> Iterator[int]:
        """The ticket of a call, 0 where it needs none. Inside, its channels are told of their producers and it is sent; the
        ticket is taken back when that fails."""
        ticket = self._issue(role, spec, ranks, arguments)
        try:
            yield ticket
        except BaseException:
            if ticket:
                with suppress(ChannelError):  # that may be why
                    self._client.send("lock.retract", ticket)
            raise

    def _issue(self, role: str, spec: MethodSpec, ranks: Sequence[int], arguments: Mapping[str, Any]) -> int:
        if not self._sharing:
            return 0
        ins, outs = channel_names(spec.ins, arguments), channel_names(spec.outs, arguments)
        if spec.on_device and role in self._sharing and ranks:
            with self._lock:  # numbers rise in the order of sending
                ticket = next(self._numbers)
                self._client.send("lock.enqueue", ticket, role, tuple(ranks), ins, outs)
            return ticket
        if outs:
            self._client.send("lock.derive", ins, outs)
        return 0

    def _look(self) -> None:
        self._sharing = frozenset(
            one for one, devices in self._devices.items()
            if any(one != other and devices & others for other, others in self._devices.items()))


def channel_names(arguments: Sequence[str], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Of those of the arguments that are channels."""
    return tuple(value.name for argument in arguments if isinstance(value := values.get(argument), Channel))

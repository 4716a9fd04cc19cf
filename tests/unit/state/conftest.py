from __future__ import annotations

import itertools

import pytest

from rlinf_cli.state.channel import ChannelsState
from rlinf_cli.state.channel_events import (
    Event,
    Get,
    GiveBack,
    Gone,
    Instruction,
    Item,
    Join,
    LeaseId,
    Put,
    Settle,
)

DRIVER, FIRST, SECOND, FUSED = 1, 2, 3, 4
IDENTITIES = {DRIVER: "driver", FIRST: "reward[0]", SECOND: "reward[1]", FUSED: "rollout[0]+actor[0]"}


class Jobs:
    """Jobs are put into `jobs`, and what comes of them into `results`; validated after each event."""

    def __init__(self) -> None:
        self.state = ChannelsState()
        self.numbers, self.requests = itertools.count(1), itertools.count(1)
        for client, identity in IDENTITIES.items():
            self.handle(Join(client, identity))

    def handle(self, event: Event) -> list[Instruction]:
        instructions = self.state.handle(event)
        self.state.validate()
        return instructions

    def put(self, *payloads: object, channel: str = "jobs", client: int = DRIVER, weight: float = 1.0, key: object = None,
            settles: tuple[LeaseId, ...] = ()) -> list[Instruction]:
        return self.handle(Put(client, channel, tuple(
            Item(client, next(self.numbers), weight, key, 1, payload, settles) for payload in payloads)))

    def get(self, n: int = 1, at_least: int = 1, client: int = FIRST, channel: str = "jobs", lease: bool = True,
            weight: float | None = None, key: object = None) -> list[Instruction]:
        return self.handle(Get(client, next(self.requests), channel, n, at_least, weight, key, lease))

    def lease(self, n: int = 1, client: int = FIRST, **options) -> tuple[LeaseId, ...]:
        """Leases of so many items that wait."""
        lend = self.get(n, at_least=n, client=client, **options)[0]
        return tuple(LeaseId(lend.channel, number) for number in lend.leases)

    def settle(self, *leases: LeaseId, client: int = FIRST) -> list[Instruction]:
        return self.handle(Settle(client, "jobs", tuple(lease.number for lease in leases)))

    def give_back(self, *leases: LeaseId, client: int = FIRST) -> list[Instruction]:
        return self.handle(GiveBack(client, "jobs", tuple(lease.number for lease in leases)))

    def ask(self, kind: type, *arguments: object, channel: str = "jobs", client: int = DRIVER) -> list[Instruction]:
        return self.handle(kind(client, next(self.requests), channel, *arguments))

    def lose(self, client: int) -> list[Instruction]:
        return self.handle(Gone(client, "died"))

    def waiting(self, channel: str = "jobs", key: object = None) -> list[object]:
        return [item.payload for item in self.state.channels[channel].waiting.get(key, ())]

    def leased(self, channel: str = "jobs") -> list[object]:
        return [lease.item.payload for lease in self.state.channels[channel].leased.values()]


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()

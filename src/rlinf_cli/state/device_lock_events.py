"""What happens to the device lock (events) and what is to be done about it (instructions); see `rlinf_cli.state.device_lock`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# ---- events: of the driver ----


@dataclass(frozen=True, slots=True)
class Enrol:
    """A role is launched, or launched again: `devices` of each rank. Groups with the same `shares` live in the same
    processes and need not make room for each other."""

    client: int
    group: str
    devices: Mapping[int, Sequence[int]]
    shares: str


@dataclass(frozen=True, slots=True)
class Dismiss:
    """The role has ended, with all that was asked for it; its processes are about to end."""

    client: int
    group: str


@dataclass(frozen=True, slots=True)
class Retire:
    """The role goes on without this rank: nobody waits for it any more."""

    client: int
    group: str
    rank: int


@dataclass(frozen=True, slots=True)
class Enqueue:
    """A call that needs the devices is issued to some ranks of a group. Numbers rise in the order of the program.

    `ins`, `outs`: the channels it takes from and puts into."""

    client: int
    ticket: int
    group: str
    ranks: Sequence[int]
    ins: Sequence[str]
    outs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Retract:
    """That call could not be sent."""

    client: int
    ticket: int


@dataclass(frozen=True, slots=True)
class Derive:
    """A call that needs no devices is issued: what it puts into `outs` is made of what comes through `ins`."""

    client: int
    ins: Sequence[str]
    outs: Sequence[str]


# ---- events: of ranks ----


@dataclass(frozen=True, slots=True)
class Enter:
    """The process of a rank has its worker, loaded. It takes the place of an earlier process of the same rank."""

    client: int
    group: str
    rank: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A rank begins the call of a ticket. May come before `Enqueue`, as it comes by another connection."""

    client: int
    request: int
    ticket: int
    group: str
    rank: int


@dataclass(frozen=True, slots=True)
class Release:
    """A rank's call has ended, or asks no longer."""

    client: int
    ticket: int
    rank: int


@dataclass(frozen=True, slots=True)
class Offloaded:
    """The answer to `Offload`: how many bytes are free now, and how long that took."""

    client: int
    group: str
    freed: int
    seconds: float


# ---- events: of the controller ----


@dataclass(frozen=True, slots=True)
class Fed:
    """A channel has a producer, an item, or its end."""

    channel: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A channel is forgotten."""

    channel: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A process has ended."""

    client: int
    how: str


Event = (Enrol | Dismiss | Retire | Enqueue | Retract | Derive | Enter | Ask | Release | Offloaded | Fed | Dropped | Gone)


# ---- instructions ----


@dataclass(frozen=True, slots=True)
class Grant:
    """The group holds its devices: the rank may begin."""

    client: int
    request: int
    onload: bool
    """What its worker needs is not on its devices."""
    switch_s: float
    """Seconds of its waiting in which others made room."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Another group is next: make room, then say `Offloaded`."""

    client: int
    group: str


Instruction = Grant | Offload

"""What happens to channels (events) and what is to be done about it (instructions); see `rlinf_cli.state.channel`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Key = Hashable
ErrorKind = Literal["closed", "broken", "timeout", "refused"]


class Item(NamedTuple):
    """What flows: identified by the client that put it and that client's running number; `payload` is never read."""

    producer: int
    number: int
    weight: float
    key: Key
    size: int
    """Bytes."""
    payload: object


# ---- events ----


@dataclass(frozen=True, slots=True)
class Join:
    """A process connected: `client` is its number, `identity` its name (`rollout[1]`)."""

    client: int
    identity: str


@dataclass(frozen=True, slots=True)
class Gone:
    """A connection ended; `how` completes the sentence "IDENTITY ..."."""

    client: int
    how: str


@dataclass(frozen=True, slots=True)
class Create:
    client: int
    request: int
    channel: str
    capacity: int
    """Items; 0 is unbounded."""
    capacity_bytes: int
    """Bytes; 0 is unbounded. An item larger than this is accepted when nothing else waits."""


@dataclass(frozen=True, slots=True)
class Put:
    client: int
    channel: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take back those of the client's items `first` to `last` which the channel has not accepted; their numbers are
    confirmed."""

    client: int
    request: int
    channel: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Get:
    """Up to `n` items, or up to a total `weight` (but one at least), once there are `at_least`."""

    client: int
    request: int
    channel: str
    n: int
    at_least: int
    weight: float | None
    key: Key


@dataclass(frozen=True, slots=True)
class Cancel:
    """The get has waited long enough. Nothing happens when it has been answered."""

    client: int
    request: int
    channel: str


@dataclass(frozen=True, slots=True)
class Declare:
    """The channel closes when all its declared producers are done, and breaks when the process of one is lost before.

    A producer is named as its process (`rollout[1]`), or so and after a `#` as the process likes (`rollout[1]#7`)."""

    client: int
    request: int
    channel: str
    producers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A declared producer puts nothing more; with `error` the channel breaks."""

    client: int
    request: int
    channel: str
    producer: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Close:
    client: int
    request: int
    channel: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget the channel; what waits is discarded and its number confirmed."""

    client: int
    request: int
    channel: str


@dataclass(frozen=True, slots=True)
class CancelAll:
    """Break every channel, also those to come."""

    reason: str


Event = Join | Gone | Create | Put | Withdraw | Get | Cancel | Declare | Done | Close | Drop | CancelAll


# ---- instructions ----


@dataclass(frozen=True, slots=True)
class Accept:
    """`count` further items of this client are in the channel. `window`: its capacity (0 unbounded)."""

    client: int
    channel: str
    count: int
    window: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """These items of this client will never be in the channel."""

    client: int
    channel: str
    numbers: tuple[int, ...]
    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class Deliver:
    client: int
    request: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Confirm:
    client: int
    request: int
    value: int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    client: int
    request: int
    kind: ErrorKind
    message: str


@dataclass(frozen=True, slots=True)
class Release:
    """Nobody will get these items: their payloads can go."""

    items: tuple[Item, ...]
    reason: str


Instruction = Accept | Refuse | Deliver | Confirm | Fail | Release

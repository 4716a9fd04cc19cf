"""What happens to channels (events) and what is to be done about it (instructions); see `rlinf_cli.state.channel`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal, NamedTuple

Key = Hashable
ErrorKind = Literal["closed", "full", "broken", "timeout", "refused"]


class LeaseId(NamedTuple):
    """`number`: of one delivery of one item; it is never used again."""

    channel: str
    number: int


class Item(NamedTuple):
    """What flows: identified by the client that put it and that client's running number; `payload` is never read."""

    producer: int
    number: int
    weight: float
    key: Key
    size: int
    """Bytes."""
    payload: object
    settles: tuple[LeaseId, ...] = ()
    """Leases that end when the item is accepted."""


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
    """Up to `n` items, or up to a total `weight` (but one at least), once there are `at_least`. With `lease` they stay the
    channel's until their leases are settled."""

    client: int
    request: int
    channel: str
    n: int
    at_least: int
    weight: float | None
    key: Key
    lease: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """The items of these leases of the client are done with. Leases that have ended are skipped."""

    client: int
    channel: str
    leases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The client does not finish these items: they are for others again. Leases that have ended are skipped."""

    client: int
    channel: str
    leases: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """The get has waited long enough. Nothing happens when it has been answered."""

    client: int
    request: int
    channel: str


@dataclass(frozen=True, slots=True)
class Declare:
    """The channel closes when all its declared producers are done, and breaks when the process of one is lost before, unless
    it is `guarded`: then somebody else says `Done` of it in the end.

    A producer is named as its process (`rollout[1]`), or so and after a `#` as the process likes (`rollout[1]#7`)."""

    client: int
    request: int
    channel: str
    producers: tuple[str, ...]
    guarded: bool = False


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
class Break:
    """Nobody shall wait on the channel any more, whether or not it was closed before: what waits is discarded."""

    client: int
    request: int
    channel: str
    reason: str


@dataclass(frozen=True, slots=True)
class Limit:
    """The channel closes as soon as it has accepted `count` items."""

    client: int
    request: int
    channel: str
    count: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget the channel; what waits, is offered or leased is discarded and its number confirmed."""

    client: int
    request: int
    channel: str


@dataclass(frozen=True, slots=True)
class CancelAll:
    """Break every channel, also those to come."""

    reason: str


Event = (Join | Gone | Create | Put | Withdraw | Get | Settle | GiveBack | Cancel | Declare | Done | Close | Break | Limit | Drop
         | CancelAll)  # fmt: skip


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
class Lend:
    """As `Deliver`, with the number of each item's lease: its payload is kept."""

    client: int
    request: int
    channel: str
    items: tuple[Item, ...]
    leases: tuple[int, ...]


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
    """Nobody will get these items (again): their payloads can go."""

    items: tuple[Item, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class TellFull:
    """A producer's process need not work for this channel any more; or, when it has been dropped, its name means another."""

    client: int
    channel: str
    full: bool


Instruction = Accept | Refuse | Deliver | Lend | Confirm | Fail | Release | TellFull

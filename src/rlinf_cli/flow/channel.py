"""The queue between two roles, as a workflow and its workers see it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf_cli.flow.client import Client, client
from rlinf_cli.flow.errors import ChannelClosedError
from rlinf_cli.flow.outbox import Outbox
from rlinf_cli.state.channel_events import LeaseId

Key = str | int | None


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """An item that a consumer works on: it goes back to its channel, for others, when the consumer's process dies before
    the lease is settled. A channel that has closed ends for its consumers only once all leases are settled."""

    item: Any
    channel: str
    number: int
    """Of this delivery."""

    @property
    def id(self) -> LeaseId:
        return LeaseId(self.channel, self.number)


class Channel:
    """A first-in-first-out queue, known by its name in every process of the run; it exists from its first use on.

    A handle is nothing but the name: it can be sent to workers, and made again anywhere. Large arrays come out as
    read-only views of shared memory, everything else as pickle would bring it.

    Keys: an item put with a key goes only to a get with that key, one without only to a get without. Order holds for
    each key. Every call that waits ends after `timeout` seconds (by default the client's, 600), and when the run is
    cancelled or the controller is gone (ChannelBrokenError).
    """

    def __init__(self, name: str, via: Client | None = None) -> None:
        self.name = name
        self._via = via
        self._outbox: tuple[Client, Outbox] | None = None

    @classmethod
    def create(cls, name: str, capacity: int = 0, capacity_bytes: int = 0, via: Client | None = None) -> Channel:
        """Bound a channel, before its first put, to so many waiting items or bytes (0: unbounded).

        What a waiting get asks for does not count, and an item larger than `capacity_bytes` is taken when the channel
        is empty: neither a large request nor a large item waits for ever.
        """
        if capacity < 0 or capacity_bytes < 0:
            raise ValueError(f"channel '{name}': a capacity cannot be negative")
        channel = cls(name, via)
        channel._client.ask("create", name, capacity, capacity_bytes)
        return channel

    @property
    def _client(self) -> Client:
        return self._via or client()

    def _puts(self) -> tuple[Client, Outbox]:
        current = self._client
        if self._outbox is None or self._outbox[0] is not current:
            self._outbox = current, current.outbox(self.name)
        return self._outbox

    def _check_amount(self, n: int, at_least: int, key: Key) -> None:
        if not 0 <= at_least <= n or n < 1:
            raise ValueError(f"get({n}, at_least={at_least}) from '{self.name}': n must be 1 or more, at_least 0 to n")
        _check_key(key)

    # ---- put ----

    def put(self, item: Any, *, weight: float = 1.0, key: Key = None, wait: bool = False,
            timeout: float | None = None, settles: Sequence[Lease] = ()) -> None:
        """Serialise and send an item; with `wait`, return when the channel has accepted it.

        `settles`: the leases whose result it is; they end in the same moment in which the item is in the channel, so that
        whenever a process dies, each leased item is either waiting again or its result is there, never both. When the put
        fails they stay open.

        Raises SerializationError when it cannot be sent, ChannelFullError when there is no room within `timeout`, and
        ChannelClosedError or ChannelBrokenError for this put or, without `wait`, for an earlier one, ValueError when a lease
        has been settled or given back before.
        """
        _check_key(key)
        current, outbox = self._puts()
        current.put(outbox, (item,), (weight,), (key,), wait, timeout, _ids(settles) if settles else ())

    def put_many(self, items: Sequence[Any], weights: Sequence[float] | None = None, keys: Sequence[Key] | None = None,
                 *, wait: bool = False, timeout: float | None = None, settles: Sequence[Lease] = ()) -> None:
        """As `put` of each item in turn, `settles` with the last one. After an error those before it have been put.
        Without items the leases are settled as by `settle`."""
        weights = weights if weights is not None else [1.0] * len(items)
        keys = keys if keys is not None else [None] * len(items)
        if not len(items) == len(weights) == len(keys):
            raise ValueError(f"{len(items)} items, {len(weights)} weights and {len(keys)} keys do not go together")
        for key in keys:
            _check_key(key)
        current, outbox = self._puts()
        if len(items):
            current.put(outbox, items, weights, keys, wait, timeout, _ids(settles))
        else:
            current.leases.settle(_ids(settles))

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything put here by this process is accepted; raise what became of it if it was refused."""
        current, outbox = self._puts()
        current.flush(timeout, self.name)
        current.report(outbox)

    # ---- get ----

    def get(self, n: int = 1, *, at_least: int = 1, weight: float | None = None, key: Key = None,
            timeout: float | None = None) -> list[Any]:
        """Up to `n` items, or as many as weigh `weight` together (one at least), once there are `at_least`.

        Fewer than `at_least` come only when `weight` is reached or the channel has closed. `at_least=0` does not wait.
        Raises ChannelClosedError when the channel is closed and nothing is left, ChannelBrokenError when a producer
        failed, ChannelTimeoutError after `timeout` seconds (nothing is taken then).
        """
        self._check_amount(n, at_least, key)
        return self._client.get(self.name, n, at_least, weight, key, timeout)

    def lease(self, n: int = 1, *, at_least: int = 1, weight: float | None = None, key: Key = None,
              timeout: float | None = None) -> list[Lease]:
        """As `get`, but each item stays the channel's until its lease is settled, by `settle` or by a `put`.

        Of several consumers that wait, the one with the least outstanding weight is served first. Do not wait for more while
        this thread itself holds leases of the channel: poll, with `at_least=0`. A closed channel ends only when all leases
        are settled.
        """
        self._check_amount(n, at_least, key)
        found = self._client.lease(self.name, n, at_least, weight, key, timeout)
        return [Lease(item, self.name, number) for item, number in found]

    def leases(self, n: int, *, at_least: int | None = None, key: Key = None,
               timeout: float | None = None) -> Iterator[list[Lease]]:
        """As `chunks`, leased. Settle each list before the next is asked for. After a list that is shorter because the
        channel has closed there may be more, which somebody else has given back."""
        with contextlib.suppress(ChannelClosedError):
            while True:
                yield self.lease(n, at_least=n if at_least is None else at_least, key=key, timeout=timeout)

    def settle(self, leases: Sequence[Lease]) -> None:
        """These items are done with, and leave nothing to put. Raises ValueError when one was settled or given back before."""
        self._client.leases.settle(_ids(leases))

    def give_back(self, leases: Sequence[Lease]) -> None:
        """These items are not done with, and go back to their channel, for others. Those that are settled are skipped."""
        self._client.leases.give_back(_ids(leases))

    def limit(self, count: int) -> None:
        """The channel closes by itself, to its producers, as soon as it has accepted so many items: later puts raise
        ChannelClosedError, and `is_full` tells producers that work for nothing. A put that was not awaited and came too late
        is no error of `flush` and `done`."""
        if count < 1:
            raise ValueError(f"channel '{self.name}': a limit of {count} items lets nothing through")
        self._client.ask("limit", self.name, count)

    @property
    def is_full(self) -> bool:
        """Whether this process, a declared producer that is not done, has been told that a `limit` is reached."""
        return self._client.is_full(self.name)

    def chunks(self, n: int, *, at_least: int | None = None, key: Key = None,
               timeout: float | None = None) -> Iterator[list[Any]]:
        """Lists of `n` items (with `at_least`: of what there is, once there are so many) until the channel closes.

        The last list may be shorter. `timeout`: seconds to wait for each.
        """
        while chunk := self._chunk(n, n if at_least is None else at_least, key, timeout):
            yield chunk

    def _chunk(self, n: int, at_least: int, key: Key, timeout: float | None) -> list[Any]:
        """Empty when the channel has closed."""
        try:
            return self.get(n, at_least=at_least, key=key, timeout=timeout)
        except ChannelClosedError:
            return []

    def __iter__(self) -> Iterator[Any]:
        """Item by item until the channel closes."""
        for chunk in self.chunks(1):
            yield from chunk

    def qsize(self) -> int:
        """Items that wait to be got, of all keys."""
        size: int = self._client.ask("qsize", self.name)
        return size

    def flowed(self) -> tuple[dict[str, int], dict[str, int]]:
        """Items that were put, and taken, so far, by process: `{'rollout[0]': 16}`."""
        puts, takes = self._client.ask("flowed", self.name)
        return puts, takes

    # ---- life ----

    def declare(self, producers: Sequence[str], guarded: bool = False) -> None:
        """Name producers: the channel closes when all of them are `done`.

        A producer is called as its process (`rollout[1]`), or `rollout[1]#ANYTHING` to tell calls apart; when that
        process is lost before it is done, the channel breaks. One that is `guarded` stays unfinished then, until a new process
        of its name, or whoever looks after it, says that it is done.
        """
        self._client.ask("declare", self.name, tuple(producers), guarded)

    def done(self, producer: str, error: str | None = None) -> None:
        """A declared producer puts nothing more. With `error` the channel breaks: gets raise ChannelBrokenError(error)
        at once, whatever waits. Without, raises what became of this process's earlier puts if they were refused."""
        current, outbox = self._puts()
        current.ask("done", self.name, producer, error)
        if error is None:
            current.report(outbox)

    def close(self) -> None:
        """Nothing more will be put; what was put remains to be got. Raises as `done`."""
        current, outbox = self._puts()
        current.ask("close", self.name)
        current.report(outbox)

    def break_off(self, reason: str) -> None:
        """Whoever waits on the channel, or ever asks it for anything, gets ChannelBrokenError(reason), closed or not."""
        self._client.ask("break", self.name, reason)

    def drop(self) -> int:
        """Forget the channel; returns how many items still waited or were leased and are now discarded."""
        current, outbox = self._puts()
        discarded: int = current.ask("drop", self.name)
        current.forget(outbox)
        return discarded

    def __repr__(self) -> str:
        return f"Channel({self.name!r})"

    def __reduce__(self) -> tuple[type[Channel], tuple[str]]:
        return Channel, (self.name,)


def _ids(leases: Sequence[Lease]) -> tuple[LeaseId, ...]:
    return tuple([lease.id for lease in leases])


def _check_key(key: Key) -> None:
    if key is not None and not isinstance(key, (str, int)):
        raise TypeError(f"a key is a str or an int, not {type(key).__name__}")

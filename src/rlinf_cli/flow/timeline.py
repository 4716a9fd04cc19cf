"""Where a call's time goes: every blocking wait inside a worker call is a span of one kind. The rest is compute.

Times are those of `time.monotonic`, which all processes of a machine share; those of another machine are shifted by what
the clocks of both say of the time of day.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["sync", "onload", "offload", "wait_lock", "wait_space", "wait_data"]
"""`sync`: weights on their way · `onload`, `offload`: a role's state moves to or off its device · `wait_lock`: another role
holds the device · `wait_space`: a channel was full · `wait_data`: a channel was empty."""

Span: TypeAlias = tuple[float, float, Kind]
"""Begin and end, in seconds since the call began."""

CLOCK = time.time() - time.monotonic()
"""Seconds since 1970 at this process's `time.monotonic()` 0."""

MOST_SPANS = 256
"""Of one call: beyond, the grain becomes coarser."""
RECENT_S = 2.0
"""So long an answer may be on its way."""
_MOST_RECENT = 256
_GRAIN_S = 0.001
"""Waits of one kind within so short a time become one, with the computing between them behind it."""


@dataclass(frozen=True)
class CallTiming:
    """One call on one rank: `began` is a time, `total` seconds; the spans are in order and do not overlap."""

    began: float = 0.0
    total: float = 0.0
    spans: tuple[Span, ...] = ()
    calls: tuple[Call, ...] = ()
    """Calls to other roles' ranks that it has waited for."""

    @property
    def kinds(self) -> dict[str, float]:
        """Seconds of each kind."""
        seconds: dict[str, float] = {}
        for start, end, kind in self.spans:
            seconds[kind] = seconds.get(kind, 0.0) + end - start
        return seconds

    @property
    def compute(self) -> float:
        return max(0.0, self.total - sum(end - start for start, end, _ in self.spans))

    def shifted(self, seconds: float) -> CallTiming:
        """By another clock, which shows so many seconds more."""
        return replace(self, began=self.began + seconds, calls=tuple(call.shifted(seconds) for call in self.calls))

    def pack(self) -> list[Any]:
        """As it is sent: plain lists and numbers."""
        return [self.began, self.total, [list(span) for span in self.spans], [call.pack() for call in self.calls]]

    @classmethod
    def unpack(cls, sent: Sequence[Any]) -> CallTiming:
        began, total, spans, calls = sent
        return cls(began, total, tuple(map(tuple, spans)), tuple(map(Call.unpack, calls)))


@dataclass(frozen=True)
class Call:
    """Who was called, and where the time went."""

    role: str
    rank: int
    method: str
    timing: CallTiming
    beside: bool = False
    """Whether it ran beside the ordinary calls (`control`)."""

    def shifted(self, seconds: float) -> Call:
        return replace(self, timing=self.timing.shifted(seconds))

    def pack(self) -> list[Any]:
        return [self.role, self.rank, self.method, self.timing.pack(), self.beside]

    @classmethod
    def unpack(cls, sent: Sequence[Any]) -> Call:
        role, rank, method, timing, beside = sent
        return cls(role, rank, method, CallTiming.unpack(timing), beside)

    def everything(self) -> Iterator[Call]:
        """This call, and those that it has waited for."""
        yield self
        for call in self.timing.calls:
            yield from call.everything()


@dataclass(frozen=True, slots=True)
class Switch:
    """A role's state was moved to its devices or off them."""

    kind: str
    """`onload` or `offload`."""
    size: int
    """Bytes that were moved to the device, or are free there now."""
    seconds: float

    def pack(self) -> list[Any]:
        return [self.kind, self.size, self.seconds]


@dataclass
class Recorder:
    """Of the call that runs in a thread."""

    began: float
    spans: list[tuple[float, float, Kind]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    grain: float = _GRAIN_S
    kind: Kind | None = None
    since: float = 0.0
    timing: CallTiming = field(default_factory=CallTiming)
    """Once the call has ended."""
    ended: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def switch(self, kind: Kind | None) -> Kind | None:
        """From now on the time is of this kind (None: compute); what it was of until now."""
        with self._lock:
            before, now = self.kind, time.monotonic() - self.began
            if before is not None:
                self._add(self.since, now, before)
            self.kind, self.since = kind, now
        return before

    def so_far(self) -> CallTiming:
        """From another thread: of a call that goes on, as if it ended now."""
        with self._lock:
            if self.ended:
                return self.timing
            now, spans = time.monotonic() - self.began, list(self.spans)
            if self.kind is not None:
                spans.append((self.since, now, self.kind))
            return CallTiming(self.began, now, tuple(spans), tuple(self.calls))

    def end(self) -> CallTiming:
        """Idempotent."""
        if not self.ended:
            self.switch(None)
            with self._lock:
                self.timing = CallTiming(self.began, time.monotonic() - self.began, tuple(self.spans), tuple(self.calls))
                self.ended = True
        return self.timing

    def recast(self, seconds: float, kind: Kind) -> None:
        """So much of the end of the latest span was of another kind."""
        with self._lock:
            if self.spans and seconds > 0:
                start, end, before = self.spans.pop()
                cut = max(start, end - seconds)
                self.spans += [(start, cut, before)] * (cut > start) + [(cut, end, kind)]

    def _add(self, start: float, end: float, kind: Kind) -> None:
        spans = self.spans
        if spans and spans[-1][2] == kind and end - spans[-1][0] <= self.grain:
            first, last, _ = spans[-1]
            spans[-1] = first, last + (end - start), kind
        else:
            spans.append((start, end, kind))
            if len(spans) > MOST_SPANS:
                self._coarsen()

    def _coarsen(self) -> None:
        """To half of the spans that are allowed, so that it is seldom needed."""
        self.spans = coarser(self.spans, self.grain)
        while len(self.spans) > MOST_SPANS // 2:
            self.grain *= 2
            self.spans = coarser(self.spans, self.grain)


def coarser(spans: Sequence[Span], grain: float) -> list[Span]:
    """The spans that lie within so many seconds are moved together, those of one kind into one. No time is lost: each
    kind keeps its seconds."""
    merged: list[Span] = []
    near: list[Span] = []
    for span in spans:
        if near and span[1] - near[0][0] > grain:
            merged += _joined(near)
            near = []
        near.append(span)
    return merged + _joined(near)


def _joined(near: Sequence[Span]) -> list[Span]:
    seconds: dict[Kind, float] = {}
    for start, end, kind in near:
        seconds[kind] = seconds.get(kind, 0.0) + end - start
    joined, at = [], near[0][0] if near else 0.0
    for kind, length in seconds.items():
        joined.append((at, at + length, kind))
        at += length
    return joined


_current = threading.local()


@contextmanager
def call() -> Iterator[Recorder]:
    """Record one worker call in this thread; its `timing` is there at the end."""
    recorder, outer = Recorder(time.monotonic()), _running()
    _current.recorder = recorder
    try:
        yield recorder
    finally:
        recorder.end()
        _current.recorder = outer


class Calls:
    """A worker's calls, for whoever asks from another thread what it is at."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, Recorder]] = {}
        self._recent: deque[tuple[str, CallTiming]] = deque(maxlen=_MOST_RECENT)
        self._lock = threading.Lock()

    @contextmanager
    def call(self, method: str) -> Iterator[Recorder]:
        """As `call`."""
        with call() as recorder:
            with self._lock:
                self._running[id(recorder)] = method, recorder
            try:
                yield recorder
            finally:
                with self._lock:
                    del self._running[id(recorder)]
                    self._recent.append((method, recorder.end()))

    def now(self) -> list[tuple[str, CallTiming]]:
        """Methods and timings: of the calls under way so far, and of those that have ended within the last moments, whose
        answers may still be on their way."""
        since = time.monotonic() - RECENT_S
        with self._lock:
            return [*((method, timing) for method, timing in self._recent if timing.began + timing.total >= since),
                    *((method, recorder.so_far()) for method, recorder in self._running.values())]


class spent:
    """The time inside is of `kind`, in the call that runs in this thread (of nothing, outside of a call).

    Inside another one, this kind counts until it ends, not the outer one.
    """

    __slots__ = ("_kind", "_outer", "_recorder")

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def __enter__(self) -> None:
        self._recorder = _running()
        if self._recorder is not None:
            self._outer = self._recorder.switch(self._kind)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._recorder is not None:
            self._recorder.switch(self._outer)


def recast(seconds: float, kind: Kind) -> None:
    """In the call that runs in this thread, if one does: so much of the end of its latest wait was of this kind."""
    recorder = _running()
    if recorder is not None:
        recorder.recast(seconds, kind)


def waited_for(other: Call) -> None:
    """The call that runs in this thread, if one does, has got the answer of another one."""
    recorder = _running()
    if recorder is not None:
        recorder.calls.append(other)


def _running() -> Recorder | None:
    return getattr(_current, "recorder", None)

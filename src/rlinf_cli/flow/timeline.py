"""Where a call's time goes: every blocking wait inside a worker call is charged to a kind.

The rest of a call is compute. Kinds: `wait_data` (a channel was empty), `wait_space` (a channel was full),
`sync` (weights on their way), `onload`, `offload`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class CallTiming:
    """Seconds of one call on one rank: `total`, and the part of it spent on each kind of waiting."""

    total: float = 0.0
    kinds: dict[str, float] = field(default_factory=dict)

    @property
    def compute(self) -> float:
        return max(0.0, self.total - sum(self.kinds.values()))


_current = threading.local()


@contextmanager
def call() -> Iterator[CallTiming]:
    """Time one worker call in this thread; `spent` inside it adds to the yielded record."""
    timing, outer, began = CallTiming(), getattr(_current, "timing", None), time.perf_counter()
    _current.timing = timing
    try:
        yield timing
    finally:
        timing.total = time.perf_counter() - began
        _current.timing = outer


@contextmanager
def spent(kind: str) -> Iterator[None]:
    """Charge the time inside to `kind` of the call that runs in this thread (nothing, outside of a call)."""
    began = time.perf_counter()
    try:
        yield
    finally:
        timing: CallTiming | None = getattr(_current, "timing", None)
        if timing is not None:
            timing.kinds[kind] = timing.kinds.get(kind, 0.0) + time.perf_counter() - began

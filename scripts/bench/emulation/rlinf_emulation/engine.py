"""Responses that take their time: a slot each, all at one speed, which may depend on how many there are."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from rlinf_cli.api import Adapter, Completion, Finish, Request, weights_checksum
from rlinf_emulation.lengths import TOKENS, EmulatedEngineConfig, length, tokens


@dataclass(frozen=True)
class Running:
    """`ends`: what the engine must have made by then, in mean lengths."""

    request: Request
    began: float
    units: float
    ends: float
    tokens: int


class EmulatedEngine:
    """See `rlinf_cli.api.Engine`."""

    takes_adapters = False

    def __init__(self, config: EmulatedEngineConfig, model: Path, device: str, max_sequence: int) -> None:
        self.version, self.capacity = 0, config.slots
        self._config, self._changed = config, threading.Condition()
        self._waiting: deque[Request] = deque()
        self._running: list[Running] = []
        self._ended: list[Completion] = []
        self._weights: dict[str, Tensor] = {}
        self._versions = [(0.0, 0)]
        """When which version came."""
        self._made = 0
        self._passed, self._at = 0.0, time.monotonic()
        """Mean lengths that every active response could have grown by since the start, and until when."""

    def submit(self, requests: Sequence[Request]) -> None:
        with self._changed:
            self._waiting.extend(requests)
            self._changed.notify_all()

    def collect(self, timeout: float | None = None) -> list[Completion]:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                now = time.monotonic()
                self._advance(now)
                if self._ended or not self.pending() or now >= deadline:
                    ended, self._ended = self._ended, []
                    return ended
                self._changed.wait(min(self._next(), deadline) - now)

    def pending(self) -> int:
        return len(self._waiting) + len(self._running) + len(self._ended)

    def abort(self, ids: Iterable[str] | None = None) -> None:
        chosen = None if ids is None else set(ids)
        with self._changed:
            now = time.monotonic()
            self._advance(now)
            for one in [one for one in self._running if chosen is None or one.request.id in chosen]:
                self._running.remove(one)
                self._end(one, now, "abort", 1 - (one.ends - self._passed) / one.units)
            for request in [one for one in self._waiting if chosen is None or one.id in chosen]:
                self._waiting.remove(request)
                self._end(Running(request, now, 1.0, 0.0, 0), now, "abort", 0.0)
            self._changed.notify_all()

    def pause(self) -> None:
        raise NotImplementedError("what is emulated goes on")

    def resume(self) -> None:
        raise NotImplementedError("what is emulated goes on")

    def update_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None = None,
                       recompute: bool = False) -> None:
        weights = {name: tensor.clone() for name, tensor in tensors}
        with self._changed:
            self.version, self._weights = version, weights
            self._versions.append((time.monotonic(), version))

    def weights_checksum(self) -> str:
        return weights_checksum(self._weights.items())

    def release_memory(self) -> int:
        time.sleep(self._config.move_s)
        return 0

    def resume_memory(self) -> int:
        time.sleep(self._config.move_s)
        return 0

    def stats(self) -> Mapping[str, float]:
        with self._changed:
            passed = self._passed + (time.monotonic() - self._at) / self._pace() if self._running else self._passed
        return {"tokens": self._made, "steps": int(passed * TOKENS), "prefill_tokens": 0, "slots_used": 0.0}

    def close(self) -> None:
        self.abort()

    def _pace(self) -> float:
        """Seconds in which every active response grows by a mean length."""
        crowd = (len(self._running) - 1) / max(1, self.capacity - 1)
        return self._config.unit_s * (1 + self._config.crowding * crowd)

    def _next(self) -> float:
        """When the next response ends."""
        soonest = min((one.ends for one in self._running), default=self._passed + 1)
        return self._at + (soonest - self._passed) * self._pace()

    def _advance(self, now: float) -> None:
        """End what is due, in the order of time, and give the slots to those that wait."""
        while self._running and (then := self._next()) <= now:
            due = min(self._running, key=lambda one: one.ends)
            self._passed, self._at = due.ends, then
            self._running.remove(due)
            self._end(due, then, "stop", 1.0)
            self._fill()
        if self._running:
            self._passed += (now - self._at) / self._pace()
        self._at = now
        self._fill()

    def _fill(self) -> None:
        while self._waiting and len(self._running) < self.capacity:
            request = self._waiting.popleft()
            units = self._units(request)
            self._running.append(Running(request, self._at, units, self._passed + units, tokens(units)))

    def _units(self, request: Request) -> float:
        """Its declared length; what nothing can stop goes on to its limit."""
        if not request.sampling.stop_token_ids:
            return request.sampling.max_new_tokens / TOKENS
        lengths = self._config.lengths if self.version >= self._config.onset else "constant"
        return length(lengths, request.id, self._config.draw)

    def _end(self, one: Running, now: float, finish: Finish, share: float) -> None:
        count = int(share * one.tokens)
        times = one.began + (np.arange(count) + 0.5) / max(1, count) * (now - one.began)
        came = np.array([at for at, _ in self._versions])
        versions = np.array([version for _, version in self._versions])[np.searchsorted(came, times) - 1]
        self._made += count
        self._ended.append(Completion(one.request.id, np.full(count, 5, np.int32), np.zeros(count, np.float32),
                                      versions.astype(np.int32), finish))

"""Responses that take their time: a slot each, at one speed."""

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
    request: Request
    began: float
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
                soonest = min((one.ends for one in self._running), default=now + 1)
                self._changed.wait(min(soonest, deadline) - now)

    def pending(self) -> int:
        return len(self._waiting) + len(self._running) + len(self._ended)

    def abort(self, ids: Iterable[str] | None = None) -> None:
        chosen = None if ids is None else set(ids)
        with self._changed:
            now = time.monotonic()
            for one in [one for one in self._running if chosen is None or one.request.id in chosen]:
                self._running.remove(one)
                self._end(one, now, "abort")
            for request in [one for one in self._waiting if chosen is None or one.id in chosen]:
                self._waiting.remove(request)
                self._end(Running(request, now, now + 1, 0), now, "abort")
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
        return 0

    def resume_memory(self) -> int:
        return 0

    def stats(self) -> Mapping[str, float]:
        steps = time.monotonic() / self._config.unit_s * TOKENS  # one a token, as they pass
        return {"tokens": self._made, "steps": int(steps), "prefill_tokens": 0, "slots_used": 0.0}

    def close(self) -> None:
        self.abort()

    def _advance(self, now: float) -> None:
        """End what is due, in the order of time, and give the slots to those that wait."""
        while True:
            while self._waiting and len(self._running) < self.capacity:
                request = self._waiting.popleft()
                units = length(self._config.lengths, request.id, self._config.draw)
                self._running.append(Running(request, now, now + units * self._config.unit_s, tokens(units)))
            due = min(self._running, key=lambda one: one.ends, default=None)
            if due is None or due.ends > now:
                return
            self._running.remove(due)
            self._end(due, due.ends, "stop")

    def _end(self, one: Running, now: float, finish: Finish) -> None:
        share = (now - one.began) / (one.ends - one.began)
        count = one.tokens if finish == "stop" else int(share * one.tokens)
        times = one.began + (np.arange(count) + 0.5) / one.tokens * (one.ends - one.began)
        came = np.array([at for at, _ in self._versions])
        versions = np.array([version for _, version in self._versions])[np.searchsorted(came, times) - 1]
        self._made += count
        self._ended.append(Completion(one.request.id, np.full(count, 5, np.int32), np.zeros(count, np.float32),
                                      versions.astype(np.int32), finish))

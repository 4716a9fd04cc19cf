"""The requests that are being worked on, dense in the slots 0 .. n-1, and what a step needs of each as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from rlinf_cli.api import Completion, Finish, Request
from rlinf_torch.noise import request_key
from rlinf_torch.sampling import Knobs
from rlinf_torch.stopping import Stopping, Watch


@dataclass(slots=True)
class Running:
    """One request and what has come of it so far."""

    request: Request
    prompt: bytes
    """The prompt's token ids; equal for requests that can share a prefill."""
    stops: frozenset[int]
    watch: Watch | None = None
    """For texts that end the response."""
    has_stopped: bool = False
    prefilled: int = -1
    """Policy version that read the prompt."""
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def take(self, token: int, logprob: float, version: int) -> bool:
        """Append a token; whether the response has ended."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)
        self.has_stopped = token in self.stops or (self.watch is not None and self.watch.completes(self.tokens))
        return self.has_stopped or len(self.tokens) == self.request.sampling.max_new_tokens

    def completion(self, aborted: bool = False) -> Completion:
        finish: Finish = "abort" if aborted else "stop" if self.has_stopped else "length"
        return Completion(self.request.id, np.array(self.tokens, np.int32), np.array(self.logprobs, np.float32),
                          np.array(self.versions, np.int32), finish)


def running(request: Request, stopping: Stopping) -> Running:
    """Raises ValueError as `Stopping.watch`."""
    return Running(request, request.prompt_ids.astype(np.int32, copy=False).tobytes(),
                   frozenset(request.sampling.stop_token_ids), stopping.watch(request.sampling.stop))


class SlotTable:
    """Columns are as long as there are slots; the first `len(table)` entries are valid."""

    def __init__(self, capacity: int) -> None:
        self.runs: list[Running] = []
        self.token = np.zeros(capacity, np.int64)
        """The token that is read next."""
        self.position = np.zeros(capacity, np.int64)
        """Its position."""
        self.step = np.zeros(capacity, np.uint64)
        """Position in the response of the token that is drawn next."""
        self.key = np.zeros(capacity, np.uint64)
        self._temperature = np.ones(capacity, np.float32)
        self._top_k = np.zeros(capacity, np.int64)
        self._top_p = np.ones(capacity, np.float32)
        self._min_p = np.zeros(capacity, np.float32)
        self._greedy = np.zeros(capacity, np.bool_)
        self._columns = (self.token, self.position, self.step, self.key, self._temperature, self._top_k, self._top_p,
                         self._min_p, self._greedy)
        self._knobs: dict[tuple[int, int], Knobs] = {}

    def __len__(self) -> int:
        return len(self.runs)

    def add(self, run: Running, position: int, token: int = 0) -> int:
        """Take the next slot; its number."""
        slot, sampling = len(self.runs), run.request.sampling
        greedy = sampling.temperature == 0
        self.runs.append(run)
        self.token[slot], self.position[slot], self.step[slot] = token, position, 0
        self.key[slot] = request_key(sampling.seed, run.request.id)
        self._greedy[slot], self._temperature[slot] = greedy, 1 if greedy else sampling.temperature
        self._top_k[slot] = 0 if greedy else sampling.top_k
        self._top_p[slot] = 1 if greedy else sampling.top_p
        self._min_p[slot] = 0 if greedy else sampling.min_p
        self._knobs.clear()
        return slot

    def text(self, slot: int) -> NDArray[np.int32]:
        """What a slot's keys and values are of: prompt and response, up to the token that is read next."""
        run = self.runs[slot]
        return np.concatenate([run.request.prompt_ids, run.tokens]).astype(np.int32)[: self.position[slot]]

    def remove(self, slots: Sequence[int]) -> tuple[list[int], list[int]]:
        """Free slots and keep the rest dense: which slots (first list) have moved to which (second)."""
        gone = set(slots)
        left = len(self.runs) - len(gone)
        targets = [slot for slot in gone if slot < left]
        sources = [slot for slot in range(left, len(self.runs)) if slot not in gone]
        for source, target in zip(sources, targets, strict=True):
            self.runs[target] = self.runs[source]
        for column in self._columns:
            column[targets] = column[sources]
        del self.runs[left:]
        self._knobs.clear()
        return sources, targets

    def knobs(self, first: int, device: torch.device) -> Knobs:
        """How the rows of the slots `first` .. n-1 are drawn."""
        place = first, len(self.runs)
        if place not in self._knobs:
            self._knobs[place] = self._make_knobs(slice(*place), device)
        return self._knobs[place]

    def _make_knobs(self, rows: slice, device: torch.device) -> Knobs:
        def column(values: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(values[rows].copy()).to(device)

        temperature = column(self._temperature)[:, None]
        greedy = column(self._greedy) if self._greedy[rows].any() else None
        if not (self._top_k[rows].any() or (self._top_p[rows] < 1).any() or self._min_p[rows].any()):
            return Knobs(temperature, greedy)
        top_k = np.where(self._top_k == 0, np.iinfo(np.int64).max, self._top_k)
        return Knobs(temperature, greedy, column(top_k)[:, None], column(self._top_p)[:, None],
                     column(self._min_p)[:, None])

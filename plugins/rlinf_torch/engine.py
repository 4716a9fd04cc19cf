"""The `torch` engine: continuous batching in the worker's own process.

Requests live in slots, dense from 0; each step first fills free slots with waiting requests (prefill), then makes one
token for every slot. Requests of one prompt (a GRPO group) share its prefill.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlinf_cli.api import Adapter, Completion, Request, UsageError, weights_checksum
from rlinf_torch.decoder import open_decoder
from rlinf_torch.engine_config import TorchEngineConfig
from rlinf_torch.held_weights import HeldWeights
from rlinf_torch.noise import uniforms
from rlinf_torch.sampling import sample
from rlinf_torch.slots import Running, SlotTable, running
from rlinf_torch.turns import FairLock

PREFILL_TOKENS = 8192
"""Tokens, padding included, that are read at once; bounds the memory of a prefill."""
ROUND = 16
"""Lengths are rounded up to a multiple of this."""


class TorchEngine:
    """See `rlinf_cli.api.Engine`. Runs on the threads that torch is given; one is enough on a CPU."""

    takes_adapters = True

    def __init__(self, config: TorchEngineConfig, model: Path, device: str, max_sequence: int) -> None:
        self.version, self.capacity = 0, config.slots
        self._device, self._max_sequence = torch.device(device), max_sequence
        with torch.inference_mode():
            self._decoder = open_decoder(model, self._device, getattr(torch, config.dtype), max_sequence)
        self._held = HeldWeights(self._decoder)
        if max_sequence > self._decoder.longest:
            raise UsageError(f"prompt and response may have {max_sequence} tokens together, but the model in {model} "
                             f"was made for {self._decoder.longest}: lower rollout.max_prompt_tokens or "
                             "rollout.max_new_tokens")
        self._lock, self._changed, self._paused = FairLock(), threading.Event(), False
        self._slots, self._room = SlotTable(config.slots), (0, 0)
        self._waiting: deque[Running] = deque()
        self._ended: list[Completion] = []
        self._ids: set[str] = set()
        self._counts = {"tokens": 0, "steps": 0, "prefill_tokens": 0, "slot_steps": 0}

    def submit(self, requests: Sequence[Request]) -> None:
        new: set[str] = set()
        for request in requests:
            self._check(request)
            if request.id in self._ids or request.id in new:
                raise ValueError(f"request {request.id} has been submitted already")
            new.add(request.id)
        with self._lock:
            self._ids |= new
            self._waiting.extend(map(running, requests))

    def collect(self, timeout: float | None = None) -> list[Completion]:
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            self._changed.clear()
            with self._lock:
                if not self._paused and not self._ended:
                    self._step()
                if self._ended or not self._ids:
                    return self._take_ended()
                paused = self._paused
            left = deadline - time.monotonic()
            if left <= 0:
                return []
            if paused:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))

    def pending(self) -> int:
        return len(self._ids)

    def abort(self, ids: Iterable[str] | None = None) -> None:
        chosen = None if ids is None else set(ids)
        with self._lock:
            kept: deque[Running] = deque()
            for run in self._waiting:
                if chosen is None or run.request.id in chosen:
                    self._ended.append(run.completion(aborted=True))
                else:
                    kept.append(run)
            self._waiting = kept
            self._end([slot for slot, run in enumerate(self._slots.runs) if chosen is None or run.request.id in chosen],
                      aborted=True)
        self._changed.set()

    def pause(self) -> None:
        with self._lock:
            self._paused = True

    def resume(self) -> None:
        with self._lock:
            self._paused = False
        self._changed.set()

    @torch.inference_mode()
    def update_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None = None) -> None:
        adopt = self._held.stage(tensors, adapter)
        with self._lock:
            adopt()
            self.version = version

    def weights_checksum(self) -> str:
        return weights_checksum(self._held.named())

    def stats(self) -> Mapping[str, float]:
        counts = self._counts
        used = counts["slot_steps"] / (counts["steps"] * self.capacity) if counts["steps"] else 0.0
        return {"tokens": counts["tokens"], "steps": counts["steps"], "prefill_tokens": counts["prefill_tokens"],
                "slots_used": used}

    def close(self) -> None:
        """Drop all requests and the key-value cache."""
        self.abort()
        with self._lock:
            self._take_ended()
            self._decoder.free()
            self._room = 0, 0
        self._changed.set()

    def _check(self, request: Request) -> None:
        prompt, most = request.prompt_ids, request.sampling.max_new_tokens
        if len(prompt) == 0:
            raise ValueError(f"request {request.id}: the prompt is empty")
        if most < 1 or len(prompt) + most > self._max_sequence:
            raise ValueError(f"request {request.id}: a prompt of {len(prompt)} tokens and a response of up to {most} "
                             f"do not fit max_sequence={self._max_sequence}")
        if prompt.min() < 0 or prompt.max() >= self._decoder.vocabulary:
            raise ValueError(f"request {request.id}: the prompt has token ids outside of the model's vocabulary of "
                             f"{self._decoder.vocabulary}")

    def _take_ended(self) -> list[Completion]:
        ended, self._ended = self._ended, []
        self._ids.difference_update(one.id for one in ended)
        return ended

    @torch.inference_mode()
    def _step(self) -> None:
        if self._waiting and len(self._slots) < self.capacity:
            self._admit()
        if len(self._slots):
            self._decode()

    def _admit(self) -> None:
        """Fill free slots: by reading prompts, or from a slot whose request has the same prompt."""
        count = min(len(self._waiting), self.capacity - len(self._slots))
        runs = [self._waiting.popleft() for _ in range(count)]
        self._reserve(len(self._slots) + count, max(len(run.request.prompt_ids) for run in runs))
        read = {run.prompt: slot for slot, run in enumerate(self._slots.runs) if run.prefilled == self.version}
        groups: dict[bytes, list[Running]] = {}
        for run in runs:
            if run.prompt in read:
                self._join(run, read[run.prompt])
            else:
                groups.setdefault(run.prompt, []).append(run)
        for batch in _batches(sorted(groups.values(), key=lambda group: len(group[0].prompt))):
            self._prefill(batch)

    def _join(self, run: Running, source: int) -> None:
        """Start from another slot's keys and values; the prompt's last token is read again, for its logits."""
        prompt = run.request.prompt_ids
        slot = self._slots.add(run, len(prompt) - 1, int(prompt[-1]))
        run.prefilled = self.version
        self._decoder.copy([source], [slot], len(prompt))

    def _prefill(self, groups: Sequence[Sequence[Running]]) -> None:
        prompts, first = [group[0].request.prompt_ids for group in groups], len(self._slots)
        leaders, sources, followers, rows = [], [], [], []
        for number, group in enumerate(groups):
            slots = [self._slots.add(run, len(run.request.prompt_ids)) for run in group]
            leaders.append(slots[0])
            followers += slots[1:]
            sources += slots[:1] * (len(slots) - 1)
            rows += [number] * len(slots)
        lengths = np.array([len(prompt) for prompt in prompts])
        tokens = np.zeros((len(prompts), lengths.max()), np.int64)
        for number, prompt in enumerate(prompts):
            tokens[number, : len(prompt)] = prompt
        logits = self._decoder.prefill(self._tensor(tokens), self._tensor(lengths), self._tensor(np.array(leaders)))
        if followers:
            self._decoder.copy(sources, followers, int(lengths.max()))
            logits = logits[self._tensor(np.array(rows))]
        self._counts["prefill_tokens"] += int(lengths.sum())
        for run in self._slots.runs[first:]:
            run.prefilled = self.version
        self._draw(logits, first)

    def _decode(self) -> None:
        table, n = self._slots, len(self._slots)
        length = int(table.position[:n].max()) + 1
        self._reserve(n, length)
        logits = self._decoder.decode(self._tensor(table.token[:n]), self._tensor(table.position[:n]), _rounded(length))
        table.position[:n] += 1
        self._counts["steps"] += 1
        self._counts["slot_steps"] += n
        self._draw(logits, 0)

    def _draw(self, logits: Tensor, first: int) -> None:
        """Draw the next token of the slots `first` .. n-1 and end what has ended."""
        table, rows = self._slots, slice(first, len(self._slots))
        noise = self._tensor(uniforms(table.key[rows], table.step[rows]))
        drawn, logprobs = sample(logits, table.knobs(first, self._device), noise)
        tokens = drawn.tolist()
        table.token[rows] = tokens
        table.step[rows] += np.uint64(1)
        self._counts["tokens"] += len(tokens)
        new = zip(table.runs[first:], tokens, logprobs.tolist(), strict=True)
        self._end([slot for slot, (run, token, logprob) in enumerate(new, first)
                   if run.take(token, logprob, self.version)])

    def _end(self, slots: Sequence[int], aborted: bool = False) -> None:
        if not slots:
            return
        self._ended += [self._slots.runs[slot].completion(aborted) for slot in slots]
        sources, targets = self._slots.remove(slots)
        if sources:
            with torch.inference_mode():
                self._decoder.copy(sources, targets, int(self._slots.position[targets].max()))

    def _reserve(self, slots: int, length: int) -> None:
        """Room for that many; more than needed when it has to grow, so that it grows seldom."""
        room = _grown(self._room[0], slots, self.capacity), _grown(self._room[1], length, self._max_sequence)
        if room != self._room:
            self._room = room
            self._decoder.reserve(room[0], _rounded(room[1]))

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def _grown(have: int, need: int, most: int) -> int:
    return have if need <= have else min(most, max(need, 2 * have, 4 * ROUND))


def _rounded(length: int) -> int:
    return -(-length // ROUND) * ROUND


def _batches(groups: Sequence[list[Running]]) -> Iterator[list[list[Running]]]:
    """Groups, shortest prompt first, in batches of at most PREFILL_TOKENS padded tokens (one group at least)."""
    batch: list[list[Running]] = []
    for group in groups:
        if batch and (len(batch) + 1) * len(group[0].request.prompt_ids) > PREFILL_TOKENS:
            yield batch
            batch = []
        batch.append(group)
    if batch:
        yield batch

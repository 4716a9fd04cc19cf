"""The `torch` engine: continuous batching in the worker's own process.

Requests live in slots, dense from 0; each step first fills free slots with waiting requests (prefill), then makes one
token for every slot. Requests of one prompt (a GRPO group) share its prefill.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlinf_cli.api import Adapter, Completion, Request, UsageError, weights_checksum
from rlinf_torch.decoder import open_decoder
from rlinf_torch.engine_config import TorchEngineConfig
from rlinf_torch.held_weights import HeldWeights
from rlinf_torch.noise import uniforms
from rlinf_torch.offloading import DeviceMemory, MappedMemory, PinnedMemory, give_back
from rlinf_torch.sampling import sample
from rlinf_torch.slots import Running, SlotTable, running
from rlinf_torch.stopping import Stopping
from rlinf_torch.turns import FairLock

T = TypeVar("T")

PREFILL_TOKENS = 8192
"""Tokens, padding included, that are read at once; bounds the memory of a prefill."""
ROUND = 16
"""Lengths are rounded up to a multiple of this."""
INVARIANT_ROUND = 64
"""The same where the last bit counts: for short lengths, kernels differ in the order of their sums."""


class TorchEngine:
    """See `rlinf_cli.api.Engine`. Runs on the threads that torch is given; one is enough on a CPU."""

    takes_adapters = True

    def __init__(self, config: TorchEngineConfig, model: Path, device: str, max_sequence: int) -> None:
        self.version, self.capacity = 0, config.slots
        self._device, self._max_sequence, self._offload = torch.device(device), max_sequence, config.offload
        self._is_away = False
        """Whether the weights are not on the device."""
        with torch.inference_mode():
            self._decoder = open_decoder(model, self._device, getattr(torch, config.dtype), max_sequence)
        self._held = HeldWeights(self._decoder)
        if max_sequence > self._decoder.longest:
            raise UsageError(f"prompt and response may have {max_sequence} tokens together, but the model in {model} "
                             f"was made for {self._decoder.longest}: lower rollout.max_prompt_tokens or "
                             "rollout.max_new_tokens (with an agent: agent.max_tokens)")
        self._lock, self._changed, self._paused = FairLock(), threading.Event(), False
        self._slots, self._room = SlotTable(config.slots), (0, 0)
        self._invariant, self._stopping = config.batch_invariant, Stopping(model)
        self._waiting: deque[Running] = deque()
        self._ended: list[Completion] = []
        self._ids: set[str] = set()
        self._counts = {"tokens": 0, "steps": 0, "prefill_tokens": 0, "slot_steps": 0, "shared_bytes": 0}

    def submit(self, requests: Sequence[Request]) -> None:
        new: set[str] = set()
        for request in requests:
            self._check(request)
            if request.id in self._ids or request.id in new:
                raise ValueError(f"request {request.id} has been submitted already")
            new.add(request.id)
        started = [running(request, self._stopping) for request in requests]
        with self._lock:
            self._ids |= new
            self._waiting.extend(started)

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
    def update_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None = None,
                       recompute: bool = False) -> None:
        self._adopt(version, self._held.stage(tensors, adapter), 0, recompute)

    @torch.inference_mode()
    def hold_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], recompute: bool = False) -> None:
        """See `HoldingEngine`."""
        if self._device.type != "cpu" or _choice(self._offload, self._device) == "weights":
            # weights that have to move need memory of their own
            self.update_weights(version, tensors, recompute=recompute)
        else:
            self._adopt(version, *self._held.hold(tensors), recompute)

    @torch.inference_mode()
    def release_memory(self) -> int:
        with self._lock:
            if self._ids:
                raise ValueError(f"{len(self._ids)} requests are pending: memory is released once all have been collected")
            choice = _choice(self._offload, self._device)
            if choice == "keep" or self._is_away:
                return 0
            freed, self._room = self._decoder.free(), (0, 0)
            # weights that a trainer trains in place are its own while it has the device
            if choice == "weights" and not self._counts["shared_bytes"]:
                freed += self._held.move(PinnedMemory() if self._device.type == "cuda" else MappedMemory())
                self._is_away = True
            give_back(self._device)
        return freed

    @torch.inference_mode()
    def resume_memory(self) -> int:
        with self._lock:
            if not self._is_away:
                return 0
            self._is_away = False
            return self._held.move(DeviceMemory(self._device))

    def weights_in_place(self) -> Mapping[str, Tensor]:
        """See `SharingEngine`."""
        return {} if self._is_away else self._held.in_place()

    @torch.inference_mode()
    def update_in_place(self, version: int, tensors: Iterable[tuple[str, Tensor]]) -> int:
        """See `SharingEngine`."""
        with self._lock:
            shared = self._held.overwrite(tensors)
            self._counts["shared_bytes"] = shared
            self.version = version
        return shared

    def weights_checksum(self) -> str:
        return weights_checksum(self._held.named())

    def stats(self) -> Mapping[str, float]:
        counts = self._counts
        used = counts["slot_steps"] / (counts["steps"] * self.capacity) if counts["steps"] else 0.0
        return {"tokens": counts["tokens"], "steps": counts["steps"], "prefill_tokens": counts["prefill_tokens"],
                "slots_used": used, "shared_bytes": counts["shared_bytes"]}

    def close(self) -> None:
        """Drop all requests and the key-value cache."""
        self.abort()
        with self._lock:
            self._take_ended()
            self._decoder.free()
            self._room = 0, 0
        self._changed.set()

    def _adopt(self, version: int, adopt: Callable[[], None], shared: int, recompute: bool) -> None:
        """Between two steps. `shared`: bytes of the new weights that are in somebody else's memory."""
        with self._lock:
            adopt()
            self.version, self._counts["shared_bytes"] = version, shared
            if recompute:
                self._read_again()

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
        read = {run.prompt: slot for slot, run in enumerate(self._slots.runs)
                if run.prefilled == self.version and not self._invariant}
        groups: dict[bytes, list[Running]] = {}
        for run in runs:
            if run.prompt in read:
                self._join(run, read[run.prompt])
            else:
                groups.setdefault(run.prompt, []).append(run)
        ordered = sorted(groups.values(), key=lambda group: len(group[0].prompt))
        lengths = [PREFILL_TOKENS if self._invariant else len(group[0].request.prompt_ids) for group in ordered]
        for batch in _batches(ordered, lengths):
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
        tokens, lengths = _padded(prompts)
        logits = self._decoder.prefill(self._tensor(tokens), self._tensor(lengths), self._tensor(np.array(leaders)))
        if followers:
            self._decoder.copy(sources, followers, int(lengths.max()))
            logits = logits[self._tensor(np.array(rows))]
        self._counts["prefill_tokens"] += int(lengths.sum())
        for run in self._slots.runs[first:]:
            run.prefilled = self.version
        self._draw(logits, first)

    def _read_again(self) -> None:
        """Compute anew, under the weights that are there now, the keys and values of all that running requests have read."""
        table = self._slots
        slots = np.argsort(table.position[: len(table)], kind="stable").tolist()
        for batch in _batches(slots, table.position[slots].tolist()):
            tokens, lengths = _padded([table.text(slot) for slot in batch])
            # nobody asks for logits: those of one and the same position are the cheapest
            last = np.full(len(batch), lengths.max())
            self._decoder.prefill(self._tensor(tokens), self._tensor(last), self._tensor(np.array(batch)))
            self._counts["prefill_tokens"] += int(lengths.sum())
        for run in table.runs:
            run.prefilled = self.version

    def _decode(self) -> None:
        table, n = self._slots, len(self._slots)
        rows, span = self._extent(n, int(table.position[:n].max()) + 1)
        self._reserve(rows, span)
        logits = self._decoder.decode(self._tensor(table.token[:rows]), self._tensor(table.position[:rows]), span)[:n]
        table.position[:n] += 1
        self._counts["steps"] += 1
        self._counts["slot_steps"] += n
        self._draw(logits, 0)

    def _extent(self, slots: int, length: int) -> tuple[int, int]:
        """Rows and positions that a decode step computes for so many slots of at most so many positions."""
        if not self._invariant:
            return slots, _rounded(length)
        # arithmetic of one shape treats all its rows alike; what positions beyond the length add to a sum is 0
        self._slots.position[slots:] = 0
        return self.capacity, min(_rounded(length, INVARIANT_ROUND), _rounded(self._max_sequence))

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


def _choice(offload: str, device: torch.device) -> str:
    """`keep`, `cache` or `weights`."""
    if offload == "auto":
        return "weights" if device.type == "cuda" else "keep"
    return offload


def _grown(have: int, need: int, most: int) -> int:
    return have if need <= have else min(most, max(need, 2 * have, 4 * ROUND))


def _rounded(length: int, step: int = ROUND) -> int:
    return -(-length // step) * step


def _padded(texts: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens [B, S], zeros at the end of the shorter ones, and lengths [B]."""
    lengths = np.array([len(text) for text in texts])
    tokens = np.zeros((len(texts), lengths.max()), np.int64)
    for row, text in enumerate(texts):
        tokens[row, : len(text)] = text
    return tokens, lengths


def _batches(items: Sequence[T], lengths: Sequence[int]) -> Iterator[list[T]]:
    """Items, shortest first, in batches of at most PREFILL_TOKENS padded tokens (one item at least)."""
    batch: list[T] = []
    for item, length in zip(items, lengths, strict=True):
        if batch and (len(batch) + 1) * length > PREFILL_TOKENS:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch

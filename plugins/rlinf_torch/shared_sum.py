"""Sums over ranks that are processes of one machine, through memory that all of them have.

What gloo takes for a small sum is mostly the time in which sleeping threads wake up, a millisecond or more; here ranks look at
each other's counters until they are all there. Ranks have counted up to g when their part of sum g is written, in bank g % 2. A
bank is written again at g + 2, after all have counted to g + 1, which they do once they have read sum g: nobody overwrites what
somebody still reads. That a part is there before its counter says so, is what x86 promises of stores, and other processors do
not.
"""

from __future__ import annotations

import mmap
import os
import platform
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rlinf_cli.api import RunError

CAPACITY = 4 << 20
"""Bytes of a rank's part, at most; what is larger is better sent in a ring."""
_LINE = 64
"""Bytes of a counter: a cache line of its own."""
_LOOKS, _SPIN_S, _NAP_S, _CHECK_S = 200, 0.002, 5e-5, 0.1
"""Looks at a stretch; seconds until a rank sleeps between looks, how long then, and between two looks at whether all still
live."""


@dataclass(frozen=True)
class Machine:
    """Where a rank is; equal for ranks that can share memory."""

    host: str
    boot: str
    kind: str

    @staticmethod
    def own() -> Machine:
        boot = Path("/proc/sys/kernel/random/boot_id")
        return Machine(socket.gethostname(), boot.read_text() if boot.is_file() else "", platform.machine())

    @property
    def keeps_order(self) -> bool:
        """Whether its processors show stores to others in their order."""
        return self.kind in ("x86_64", "AMD64")


class SharedSum:
    """One rank's end. `memory`: `size(world)` bytes, zeros at first; `pids`: of all ranks, in their order; `timeout`: the longest
    wait for another rank, in seconds."""

    def __init__(self, memory: mmap.mmap, rank: int, pids: list[int], timeout: float) -> None:
        self._memory, self._rank, self._pids, self._timeout, self._generation = memory, rank, pids, timeout, 0
        counters = np.frombuffer(self._memory, np.int64, len(pids) * _LINE // 8)
        self._counters = counters[:: _LINE // 8]

    def sum(self, part: Tensor) -> Tensor:
        """Of all ranks' parts, added in the order of ranks: the same bits on each. Contiguous, on the CPU, at most `CAPACITY`
        bytes. Raises RunError when a rank has died, or does not come."""
        self._generation += 1
        self._slot(self._rank, part).copy_(part)
        self._counters[self._rank] = self._generation
        self._await()
        total = self._slot(0, part).clone()
        for rank in range(1, len(self._pids)):
            total += self._slot(rank, part)
        return total

    def _slot(self, rank: int, part: Tensor) -> Tensor:
        bank = self._generation % 2
        offset = len(self._pids) * _LINE + (bank * len(self._pids) + rank) * CAPACITY
        return torch.frombuffer(self._memory, dtype=part.dtype, count=part.numel(), offset=offset).view_as(part)

    def _await(self) -> None:
        """Until all ranks have written theirs."""
        counters, generation = self._counters, self._generation
        began = checked = time.monotonic()
        while True:
            for _ in range(_LOOKS):
                if counters.min() >= generation:
                    return
            now = time.monotonic()
            time.sleep(_NAP_S if now - began > _SPIN_S else 0)  # lets the other threads of this process in
            if now - checked > _CHECK_S:
                checked = now
                self._require_alive()
                if now - began > self._timeout:
                    raise RunError(f"another rank of the trainer has not come to a sum within {self._timeout:g} s")

    def _require_alive(self) -> None:
        for rank, pid in enumerate(self._pids):
            if not lives(pid):
                raise RunError(f"rank {rank} of the trainer has died")


def size(world: int) -> int:
    """Bytes of the memory that so many ranks share; only what is used of it takes room."""
    return world * _LINE + 2 * world * CAPACITY


def lives(pid: int) -> bool:
    """Whether a process of this machine still runs; one that nobody has waited for yet does not."""
    try:
        stat = Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def create(world: int) -> str:
    """A new file in memory, by its path; empty where there is no room."""
    shm = Path("/dev/shm")
    try:
        descriptor, path = tempfile.mkstemp(prefix="rlinf-sum-", dir=shm if shm.is_dir() else None)
        os.ftruncate(descriptor, size(world))
        os.close(descriptor)
    except OSError:
        return ""
    return path


def attach(path: str) -> mmap.mmap | None:
    """The memory of such a file; None where this process cannot see it."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        return mmap.mmap(descriptor, 0)
    finally:
        os.close(descriptor)

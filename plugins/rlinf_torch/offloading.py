"""Where tensors wait while their device is wanted by others: pinned host memory, or a file that is mapped into memory."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from rlinf_cli.api import RunError

CHUNK_BYTES = 2**25
"""A file holds several small tensors: each one is an open file."""
ALIGNMENT = 64
"""Bytes; as torch aligns its own."""


class Memory(Protocol):
    """Where a tensor's values can be."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Room for a tensor."""
        ...

    def settle(self) -> None:
        """Everything has been written."""
        ...


class DeviceMemory:
    """The device's own; on a CPU, anonymous memory."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, device=self._device)

    def settle(self) -> None:
        """Later work on the device sees it anyway."""


class PinnedMemory:
    """Host memory that a GPU reads and writes by itself."""

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=True)

    def settle(self) -> None:
        torch.cuda.synchronize()


class MappedMemory:
    """Files without a name in the directory for temporary files, each gone with the last of its tensors, or the process.

    What has settled takes none of the process's memory until it is read, and the system may take it back then.
    """

    def __init__(self) -> None:
        self._files: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._last: mmap.mmap | None = None
        self._used = 0

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        count = math.prod(shape)
        if not count:
            return torch.empty(tuple(shape), dtype=dtype)
        size = count * dtype.itemsize
        if self._last is None or self._used + size > len(self._last):
            self._last, self._used = _nameless_file(max(size, CHUNK_BYTES)), 0
            self._files.add(self._last)
        tensor = torch.frombuffer(self._last, dtype=dtype, count=count, offset=self._used).view(tuple(shape))
        self._used += -(-size // ALIGNMENT) * ALIGNMENT
        return tensor

    def settle(self) -> None:
        self._last = None
        for file in self._files:
            file.madvise(mmap.MADV_DONTNEED)


def _nameless_file(size: int) -> mmap.mmap:
    """Raises RunError when there is no room: a write to a mapped page that the disk refuses would end the process."""
    try:
        with tempfile.TemporaryFile() as file:
            if sys.platform == "linux":
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise RunError(f"no room for {size / 1e9:.3g} GB in {tempfile.gettempdir()}, where what leaves a device waits "
                       f"({error.strerror}): make room there, or name another directory in TMPDIR") from error


def resting_place(choice: str, device: torch.device) -> Memory | None:
    """Of what leaves a device, for `auto`, `keep`, `host` or `file`; None where it stays."""
    if choice == "auto":
        choice = "host" if device.type == "cuda" else "keep"
    if choice == "keep":
        return None
    return MappedMemory() if choice == "file" else PinnedMemory()


@torch.inference_mode(False)
def move(tensors: Iterable[Tensor], memory: Memory) -> int:
    """Let tensors have their values there from now on; the bytes. Who holds a tensor notices nothing, who holds a view of
    one keeps the place where it was."""
    moved = 0
    for tensor in tensors:
        tensor.data = memory.empty(tensor.shape, tensor.dtype).copy_(tensor.detach(), non_blocking=True)
        moved += tensor.nbytes
    memory.settle()
    return moved


def give_back(device: torch.device) -> None:
    """Return what is free to the system: allocators keep it for themselves."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif hasattr(ctypes.CDLL(None), "malloc_trim"):  # of the GNU library
        ctypes.CDLL(None).malloc_trim(0)

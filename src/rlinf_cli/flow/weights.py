"""Weights on their way from the trainer to the engines: versioned, atomic, checked on both sides.

The publisher copies its tensors once into shared memory (two regions, used in turn, so that a slow reader of version v
is not disturbed by the writing of v+1). Engines on the same node read them there without a further copy; engines on
other nodes fetch them bucket by bucket from the node's store, so that what is under way does not grow with the model,
or, on slow links, only what has changed (`weights_delta`). Where the engines take adapters, only the factors travel.
Each engine answers with the checksum of what it holds then.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.errors import RunError
from rlinf_cli.flow.weights_delta import difference
from rlinf_cli.flow.weights_layout import Bytes, Changes, Entry, Manifest, buckets, in_type, layout
from rlinf_cli.models.checksum import BATCH_BYTES, combined, tensor_checksums

if TYPE_CHECKING:
    import torch

Named: TypeAlias = "Sequence[tuple[str, torch.Tensor]]"
Send: TypeAlias = Callable[[Manifest], Mapping[str, str]]
"""Tells engines of a manifest; the checksum that each has answered with, by its name, such as `rollout[1]`."""

_WRITERS = min(4, os.cpu_count() or 1)
"""Threads that copy: more do not get more out of a memory bus."""


class Publisher:
    """The trainer's side. One instance a process; `directory` is in shared memory and is removed with the run.

    `dtype`: the type in which the engines hold floating-point weights; empty: that of the trainer. Methods may be called
    from several threads: one waits for the other.
    """

    def __init__(self, directory: Path, node: str, dtype: str = "") -> None:
        self._directory, self._node, self._dtype = directory, node, dtype
        self._files = {name: SharedFile(directory / name) for name in ("weights-0", "weights-1", "weights-changes")}
        self._trained: str | None = None
        self._current: Manifest | None = None
        self._lock = threading.Lock()
        self._writers = ThreadPoolExecutor(_WRITERS, "rlinf-weights")  # torch takes its time in threads that are new to it

    def publish(self, version: int, named: Iterable[tuple[str, torch.Tensor]], changed: bool, send: Send,
                adapter: Adapter | None = None, base: str = "", delta: bool = False) -> Manifest:
        """Write the tensors, let `send` tell the engines of them, compare the checksums that come back.

        `changed`: whether an optimiser step has moved the weights since the last call; a checksum that did not follow
        is an error. `adapter`: what the tensors are the factors of, sent as they are, `base` the checksum of the files
        of the weights beneath. `delta`: write down for other nodes what differs from the version before. Raises RunError
        when an engine's checksum differs.
        """
        with self._lock:
            dtype = "" if adapter is not None else self._dtype
            tensors, before = list(named), self._current
            entries, size = layout(tensors, dtype)
            file = self._files["weights-1" if before is None or before.path.endswith("0") else "weights-0"]
            region = file.room(size)
            trained, checksum = write(region, entries, tensors, dtype, self._writers)
            if changed and trained == self._trained:
                raise RunError(f"the optimiser stepped to version {version}, but the weights did not change")
            changes = self._changes(before, region, entries) if delta else None
            self._current = Manifest(version, checksum, self._node, str(file.path), size, entries, adapter, base, changes)
            self._tell(self._current, send)
            self._trained = trained
            return self._current

    def resend(self, send: Send) -> int:
        """Let `send` tell further engines of what was published last; its version, -1 before there is any: engines then
        hold what they were built with. Waits for a publication in progress. Raises as `publish`."""
        with self._lock:
            if self._current is None:
                return -1
            self._tell(self._current, send)
            return self._current.version

    def close(self) -> None:
        self._writers.shutdown()
        for file in self._files.values():
            file.remove()

    def _tell(self, manifest: Manifest, send: Send) -> None:
        for engine, answer in send(manifest).items():
            if answer != manifest.checksum:
                raise RunError(f"{engine} holds other weights than the trainer sent for version {manifest.version} "
                               f"(checksum {answer} instead of {manifest.checksum})")

    def _changes(self, before: Manifest | None, region: Bytes, entries: Sequence[Entry]) -> Changes | None:
        if before is None or before.entries != tuple(entries):
            return None
        file = self._files["weights-changes"]
        old = self._files[os.path.basename(before.path)].room(before.size)
        parts = difference(old, region, entries, file.room)
        return None if parts is None else Changes(before.checksum, str(file.path), parts)


class SharedFile:
    """A file in shared memory, mapped for writing. One that has to grow is a new file under the old name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._array: Bytes | None = None

    def room(self, size: int) -> Bytes:
        """The file, of at least `size` bytes; what it held is lost only when it has to grow."""
        if self._array is None or len(self._array) < size:
            self._array = None
            self._array = _create(self.path, size)
        return self._array

    def remove(self) -> None:
        self._array = None
        self.path.unlink(missing_ok=True)


def write(region: Bytes, entries: Sequence[Entry], tensors: Named, dtype: str, pool: Executor) -> tuple[str, str]:
    """Copy the tensors to their places, in another type where one is given; the checksums of what they were and are."""

    named = {entry: tensor for entry, (_, tensor) in zip(entries, tensors, strict=True)}

    def some(bucket: Sequence[Entry]) -> tuple[list[str], list[str]]:
        before = [(entry.name, named[entry]) for entry in bucket]
        held = [(name, in_type(tensor, dtype)) for name, tensor in before]
        checksums = tensor_checksums(held, [region[entry.offset : entry.offset + entry.length] for entry in bucket])
        same = all(one is other for (_, one), (_, other) in zip(before, held, strict=True))
        return (checksums if same else tensor_checksums(before)), checksums

    found = list(pool.map(some, buckets(entries, BATCH_BYTES)))
    return combined(one for was, _ in found for one in was), combined(one for _, now in found for one in now)


def _create(path: Path, size: int) -> Bytes:
    path.unlink(missing_ok=True)
    with open(path, "x+b") as file:
        try:
            # reserves the pages now: a full shared memory is an error here instead of a SIGBUS at the first write
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            path.unlink()
            raise RunError(f"no room for {size / 1e6:.0f} MB of weights in {path.parent} ({error.strerror}): "
                           "enlarge /dev/shm") from error
        mapped = mmap.mmap(file.fileno(), max(size, 1), flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    return np.frombuffer(mapped, np.uint8)

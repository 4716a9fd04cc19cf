"""Weights on their way from the trainer to the engines: versioned, atomic, checked on both sides.

The publisher copies its tensors once into shared memory (two regions, used in turn, so that a slow reader of version v
is not disturbed by the writing of v+1). Engines on the same node read them there without a further copy; engines on
other nodes fetch them bucket by bucket from the node's store, so that what is under way does not grow with the model.
Where the engines take adapters, only the factors travel. Each engine answers with the checksum of what it holds then.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.errors import RunError
from rlinf_cli.flow.client import Client
from rlinf_cli.models.checksum import weights_checksum
from rlinf_cli.models.merge import base_checksum

if TYPE_CHECKING:
    import torch

Named: TypeAlias = "Sequence[tuple[str, torch.Tensor]]"

ALIGNMENT = 64
BUCKET_BYTES = 1 << 26
"""What is fetched from another node at once, at most."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies in the buffer: offset and length in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is published: enough for a receiver to find and check every tensor."""

    version: int
    checksum: str
    node: str
    path: str
    size: int
    entries: tuple[Entry, ...]
    adapter: Adapter | None = None
    """What the tensors are the factors of; None when they are the weights."""
    base: str = ""
    """With an adapter: checksum of the weights that it belongs to, as their files hold them."""


def layout(tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[tuple[Entry, ...], int]:
    """Aligned places for the tensors, in their order, and the bytes needed for all."""
    entries, end = [], 0
    for name, tensor in tensors:
        length = tensor.numel() * tensor.element_size()
        entries.append(Entry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), end, length))
        end = -(-(end + length) // ALIGNMENT) * ALIGNMENT
    return tuple(entries), end


class Publisher:
    """The trainer's side. One instance a process; `directory` is in shared memory and is removed with the run.

    `dtype`: the type in which the engines hold floating-point weights; empty: that of the trainer.
    """

    def __init__(self, directory: Path, node: str, dtype: str = "") -> None:
        self._directory, self._node, self._dtype = directory, node, dtype
        self._regions: list[NDArray[np.uint8] | None] = [None, None]
        self._turn = 0
        self._last: str | None = None

    def publish(self, version: int, named: Iterable[tuple[str, torch.Tensor]], changed: bool,
                send: Callable[[Manifest], Sequence[str]], adapter: Adapter | None = None, base: str = "") -> Manifest:
        """Write the tensors, let `send` tell the engines of them, compare the checksums that come back.

        `changed`: whether an optimiser step has moved the weights since the last call; a checksum that did not follow
        is an error. `adapter`: what the tensors are the factors of, sent as they are, `base` the checksum of the files
        of the weights beneath. Raises RunError when an engine's checksum differs.
        """
        trained = list(named)
        before = weights_checksum(trained)
        if changed and before == self._last:
            raise RunError(f"the optimiser stepped to version {version}, but the weights did not change")
        tensors = trained if adapter is not None else list(in_type(trained, self._dtype))
        checksum = weights_checksum(tensors) if _differ(tensors, trained) else before
        entries, size = layout(tensors)
        path, region = self._region(size)
        for entry, (_, tensor) in zip(entries, tensors, strict=True):
            np.copyto(region[entry.offset : entry.offset + entry.length], _bytes(tensor))
        manifest = Manifest(version, checksum, self._node, str(path), size, entries, adapter, base)
        for number, answer in enumerate(send(manifest)):
            if answer != checksum:
                raise RunError(f"rollout[{number}] holds other weights than the trainer sent for version {version} "
                               f"(checksum {answer} instead of {checksum})")
        self._last = before
        return manifest

    def close(self) -> None:
        for turn in range(2):
            self._regions[turn] = None
            (self._directory / f"weights-{turn}").unlink(missing_ok=True)

    def _region(self, size: int) -> tuple[Path, NDArray[np.uint8]]:
        self._turn = 1 - self._turn
        path, region = self._directory / f"weights-{self._turn}", self._regions[self._turn]
        if region is None or len(region) < size:
            region = self._regions[self._turn] = _create(path, size)
        return path, region


class Receiver:
    """The engine's side: tensors of a manifest, as views of shared memory where it is on the same node.

    `client`: this process's, which knows its node and reads others' shared memory · `model`: the directory that the
    engine was built from.
    """

    def __init__(self, client: Client, model: Path, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._client, self._model, self._bucket_bytes = client, model, bucket_bytes
        self._base = ""
        self._maps: dict[tuple[str, int], NDArray[np.uint8]] = {}

    def tensors(self, manifest: Manifest) -> Iterator[tuple[str, torch.Tensor]]:
        """Raises RunError when they belong to an adapter of other weights than those of the engine's model."""
        import torch

        if manifest.base and manifest.base != self._own_base():
            raise RunError(f"the adapter of version {manifest.version} belongs to other weights than those in {self._model} "
                           f"on {self._client.node}: give all nodes the same model")
        for bucket in buckets(manifest.entries, self._bucket_bytes):
            start = bucket[0].offset
            data = torch.from_numpy(self._bytes(manifest, start, bucket[-1].offset + bucket[-1].length))
            for entry in bucket:
                yield entry.name, _tensor(data[entry.offset - start :], entry)

    def _own_base(self) -> str:
        self._base = self._base or base_checksum(self._model)
        return self._base

    def _bytes(self, manifest: Manifest, start: int, end: int) -> NDArray[np.uint8]:
        if manifest.node == self._client.node:
            return self._map(manifest)[start:end]
        read, file = self._client.node_store(manifest.node), os.path.basename(manifest.path)
        fetched = np.empty(end - start, np.uint8)
        for offset in range(start, end, self._bucket_bytes):
            part = read(file, offset, min(self._bucket_bytes, end - offset))
            fetched[offset - start : offset - start + len(part)] = part
        return fetched

    def _map(self, manifest: Manifest) -> NDArray[np.uint8]:
        # the file's identity: a region that had to grow is a new file under the old name
        identity = (manifest.path, os.stat(manifest.path).st_ino)
        if identity not in self._maps:
            self._maps = {key: value for key, value in self._maps.items() if key[0] != manifest.path}
            with open(manifest.path, "r+b") as file:
                self._maps[identity] = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        return self._maps[identity]


def in_type(named: Iterable[tuple[str, torch.Tensor]], dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Floating-point tensors in another type; as they are when it is empty, or theirs already."""
    import torch

    for name, tensor in named:
        yield name, tensor.to(getattr(torch, dtype)) if dtype and tensor.is_floating_point() else tensor


def buckets(entries: Sequence[Entry], most: int) -> Iterator[list[Entry]]:
    """Entries that lie side by side, together at most `most` bytes, or one that is larger."""
    bucket: list[Entry] = []
    for entry in entries:
        if bucket and entry.offset + entry.length - bucket[0].offset > most:
            yield bucket
            bucket = []
        bucket.append(entry)
    if bucket:
        yield bucket


def deliver(targets: Any, timeout: float) -> Callable[[Manifest], list[str]]:
    """A `send` for `Publisher.publish`: calls `update_weights(manifest)` on all ranks of a group."""
    return lambda manifest: list(targets.update_weights(manifest).wait(timeout))


def _differ(one: Named, other: Named) -> bool:
    """Whether any tensor was converted."""
    return any(a is not b for (_, a), (_, b) in zip(one, other, strict=True))


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    import torch

    host = tensor.detach().to("cpu").contiguous()
    array: NDArray[np.uint8] = host.view(-1).view(torch.uint8).numpy() if host.numel() else np.empty(0, np.uint8)
    return array


def _tensor(data: torch.Tensor, entry: Entry) -> torch.Tensor:
    """The entry's tensor, whose bytes `data` begins with."""
    import torch

    dtype = getattr(torch, entry.dtype)
    return data[: entry.length].view(dtype).view(entry.shape) if entry.length else torch.empty(entry.shape, dtype=dtype)


def _create(path: Path, size: int) -> NDArray[np.uint8]:
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

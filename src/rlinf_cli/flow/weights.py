"""Weights on their way from the trainer to the engines: versioned, atomic, checked on both sides.

The publisher copies its tensors once into shared memory (two regions, used in turn, so that a slow reader of version v
is not disturbed by the writing of v+1); engines on the same node read them there without a further copy, engines on
other nodes get the same buffer through Ray. Each engine answers with the checksum of what it holds then.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.errors import RunError
from rlinf_cli.models.checksum import weights_checksum

if TYPE_CHECKING:
    import torch

ALIGNMENT = 64


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
    host: str
    path: str
    size: int
    entries: tuple[Entry, ...]


def layout(tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[tuple[Entry, ...], int]:
    """Aligned places for the tensors, in their order, and the bytes needed for all."""
    entries, end = [], 0
    for name, tensor in tensors:
        length = tensor.numel() * tensor.element_size()
        entries.append(Entry(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), end, length))
        end = -(-(end + length) // ALIGNMENT) * ALIGNMENT
    return tuple(entries), end


class Publisher:
    """The trainer's side. One instance a process; `directory` is in shared memory and is removed with the run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._regions: list[NDArray[np.uint8] | None] = [None, None]
        self._turn = 0
        self._last: str | None = None

    def publish(self, version: int, named: Iterable[tuple[str, torch.Tensor]], changed: bool,
                send: Callable[[Manifest, NDArray[np.uint8]], list[str]]) -> Manifest:
        """Write the tensors, let `send` bring them to the engines, compare the checksums that come back.

        `changed`: whether an optimiser step has moved the weights since the last call; a checksum that did not follow
        is an error. Raises RunError when an engine's checksum differs.
        """
        tensors = list(named)
        checksum = weights_checksum(tensors)
        if changed and checksum == self._last:
            raise RunError(f"the optimiser stepped to version {version}, but the weights did not change")
        entries, size = layout(tensors)
        path, region = self._region(size)
        for entry, (_, tensor) in zip(entries, tensors, strict=True):
            np.copyto(region[entry.offset : entry.offset + entry.length], _bytes(tensor))
        manifest = Manifest(version, checksum, socket.gethostname(), str(path), size, entries)
        for number, answer in enumerate(send(manifest, region[:size])):
            if answer != checksum:
                raise RunError(f"rollout[{number}] holds other weights than the trainer sent for version {version} "
                               f"(checksum {answer} instead of {checksum})")
        self._last = checksum
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
    """The engine's side: tensors of a manifest, as views of shared memory where it is on the same host."""

    def __init__(self) -> None:
        self._maps: dict[tuple[str, int], NDArray[np.uint8]] = {}

    def tensors(self, manifest: Manifest, reference: Any | None) -> Iterator[tuple[str, torch.Tensor]]:
        """`reference` is Ray's to the bytes when they come through it; None reads the publisher's shared memory."""
        import torch

        data = torch.from_numpy(self._map(manifest) if reference is None else _from_ray(reference))
        for entry in manifest.entries:
            raw = data[entry.offset : entry.offset + entry.length]
            yield entry.name, raw.view(getattr(torch, entry.dtype)).view(entry.shape)

    def _map(self, manifest: Manifest) -> NDArray[np.uint8]:
        # the file's identity: a region that had to grow is a new file under the old name
        identity = (manifest.path, os.stat(manifest.path).st_ino)
        if identity not in self._maps:
            self._maps = {key: value for key, value in self._maps.items() if key[0] != manifest.path}
            with open(manifest.path, "r+b") as file:
                self._maps[identity] = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        return self._maps[identity]


def deliver(targets: Any, timeout: float) -> Callable[[Manifest, NDArray[np.uint8]], list[str]]:
    """A `send` for `Publisher.publish`: calls `update_weights(manifest, reference)` on all ranks of a group."""

    def send(manifest: Manifest, region: NDArray[np.uint8]) -> list[str]:
        here = all(host == manifest.host for host in targets.hosts)
        reference = None if here else [_to_ray(region)]
        return list(targets.update_weights(manifest, reference).wait(timeout))

    return send


def _to_ray(region: NDArray[np.uint8]) -> Any:
    import ray

    return ray.put(region)


def _from_ray(reference: Any) -> NDArray[np.uint8]:
    import ray

    received: NDArray[np.uint8] = ray.get(reference[0])
    # Ray's views are read-only, which torch warns about; the receiver only reads
    return received if received.flags.writeable else received.copy()


def _bytes(tensor: torch.Tensor) -> NDArray[np.uint8]:
    import torch

    host = tensor.detach().to("cpu").contiguous()
    array: NDArray[np.uint8] = host.view(-1).view(torch.uint8).numpy() if host.numel() else np.empty(0, np.uint8)
    return array


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

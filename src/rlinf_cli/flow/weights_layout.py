"""Where published weights lie: what a publisher and a receiver agree on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.trainer import Adapter

if TYPE_CHECKING:
    import torch

Bytes = NDArray[np.uint8]

ALIGNMENT = 64
BUCKET_BYTES = 1 << 26
"""What is fetched from another node at once, at most."""


class Extent(Protocol):
    """A part of a file."""

    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...


Part = TypeVar("Part", bound=Extent)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies in the buffer: offset and length in bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Change:
    """What of one tensor differs from the version before, in the file of changes. `form`: `all` of its bytes, or the new
    elements behind their `places` (uint32) or behind a `bitmap` of one bit an element."""

    form: str
    count: int
    """Elements that differ."""
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference to the version before, one `Change` an entry, for receivers that hold that one."""

    base: str
    """Checksum of the version before."""
    path: str
    parts: tuple[Change, ...]


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
    changes: Changes | None = None
    """For other nodes, where that is less than everything."""


def layout(tensors: Iterable[tuple[str, torch.Tensor]], dtype: str = "") -> tuple[tuple[Entry, ...], int]:
    """Aligned places for the tensors, in their order, as they are once `in_type`; and the bytes needed for all."""
    import torch

    entries, end = [], 0
    for name, tensor in tensors:
        held = getattr(torch, dtype) if dtype and tensor.is_floating_point() else tensor.dtype
        length = tensor.numel() * held.itemsize
        entries.append(Entry(name, str(held).removeprefix("torch."), tuple(tensor.shape), end, length))
        end = -(-(end + length) // ALIGNMENT) * ALIGNMENT
    return tuple(entries), end


def in_type(tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    """A floating-point tensor in another type; as it is when that is empty, or its own."""
    import torch

    return tensor.to(getattr(torch, dtype)) if dtype and tensor.is_floating_point() else tensor


def buckets(parts: Sequence[Part], most: int) -> Iterator[list[Part]]:
    """Parts that lie side by side, together at most `most` bytes, or one that is larger."""
    bucket: list[Part] = []
    for part in parts:
        if bucket and part.offset + part.length - bucket[0].offset > most:
            yield bucket
            bucket = []
        bucket.append(part)
    if bucket:
        yield bucket


def tensor_at(data: torch.Tensor, entry: Entry) -> torch.Tensor:
    """The entry's tensor, whose bytes `data` (uint8) begins with."""
    import torch

    dtype = getattr(torch, entry.dtype)
    return data[: entry.length].view(dtype).view(entry.shape) if entry.length else torch.empty(entry.shape, dtype=dtype)

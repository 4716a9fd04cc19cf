"""A checksum of a policy's weights that sender and receiver can compare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

BATCH_BYTES = 1 << 24
"""Tensors are made ready together, up to so many bytes: between two of them nothing of the program is left in the caches, and
a few calls take as long as reading a megabyte."""


def weights_checksum(named: Iterable[tuple[str, Tensor]]) -> str:
    """Checksum of names, shapes, dtypes and raw bytes (32 hexadecimal digits); the order of the tensors is irrelevant.

    Contiguous tensors in host memory are read in place; others pass through it, not all at a time.
    """
    return combined(checksum for batch in _batches(named) for checksum in tensor_checksums(batch))


def combined(checksums: Iterable[str]) -> str:
    """The checksum of all from those of single tensors."""
    return xxhash.xxh3_128_hexdigest("\n".join(sorted(checksums)).encode())


def tensor_checksums(named: Iterable[tuple[str, Tensor]], copies: Iterable[NDArray[np.uint8]] = ()) -> list[str]:
    """Of single tensors. `copies`: filled with their bytes."""
    ready = [(f"{name} {tensor.dtype} {tuple(tensor.shape)}", raw_bytes(tensor)) for name, tensor in named]
    return [f"{label} {_digest(raw, copy)}" for (label, raw), copy in zip_longest(ready, copies)]


def raw_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """A tensor's bytes in host memory, as uint8; in place where that is possible."""
    import torch

    array: NDArray[np.uint8] = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
    return array


def _batches(named: Iterable[tuple[str, Tensor]]) -> Iterator[list[tuple[str, Tensor]]]:
    batch: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in named:
        batch.append((name, tensor))
        size += tensor.nbytes
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _digest(raw: NDArray[np.uint8], copy: NDArray[np.uint8] | None) -> str:
    import numpy as np

    if copy is not None:
        np.copyto(copy, raw)
    return xxhash.xxh3_128_hexdigest(raw.data)

"""A checksum of a policy's weights that sender and receiver can compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

_BLOCK = 1 << 21
"""Bytes that a core's cache keeps between two uses."""


def weights_checksum(named: Iterable[tuple[str, Tensor]]) -> str:
    """Checksum of names, shapes, dtypes and raw bytes (32 hexadecimal digits); the order of the tensors is irrelevant.

    Contiguous tensors in host memory are read in place; those on a device pass through the host one at a time.
    """
    return combined(tensor_checksum(name, tensor) for name, tensor in named)


def combined(checksums: Iterable[str]) -> str:
    """The checksum of all from those of single tensors."""
    return xxhash.xxh3_128_hexdigest("\n".join(sorted(checksums)).encode())


def tensor_checksum(name: str, tensor: Tensor, copy: NDArray[np.uint8] | None = None) -> str:
    """Of one tensor. `copy`: filled with its bytes, which are read once for both."""
    raw = raw_bytes(tensor)
    content = _digest(raw) if copy is None else _digest_and_copy(raw, copy)
    return f"{name} {tensor.dtype} {tuple(tensor.shape)} {content}"


def raw_bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """A tensor's bytes in host memory, as uint8; in place where that is possible."""
    import torch

    array: NDArray[np.uint8] = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8).numpy()
    return array


def _digest(raw: NDArray[np.uint8]) -> str:
    return xxhash.xxh3_128_hexdigest(raw.data)


def _digest_and_copy(raw: NDArray[np.uint8], copy: NDArray[np.uint8]) -> str:
    import numpy as np

    digest = xxhash.xxh3_128()
    for start in range(0, len(raw), _BLOCK):
        block = raw[start : start + _BLOCK]
        digest.update(block.data)
        np.copyto(copy[start : start + _BLOCK], block)
    return digest.hexdigest()


"""A checksum of a policy's weights that sender and receiver can compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from torch import Tensor


def weights_checksum(named: Iterable[tuple[str, Tensor]]) -> str:
    """Checksum of names, shapes, dtypes and raw bytes (32 hexadecimal digits); the order of the tensors is irrelevant.

    Contiguous tensors in host memory are read in place; those on a device pass through the host one at a time.
    """
    digests = sorted(_digest(name, tensor) for name, tensor in named)
    return xxhash.xxh3_128_hexdigest("\n".join(digests).encode())


def _digest(name: str, tensor: Tensor) -> str:
    import torch

    raw = tensor.detach().to("cpu").contiguous().reshape(-1).view(torch.uint8)
    content = xxhash.xxh3_128_hexdigest(raw.numpy().data)
    return f"{name} {tensor.dtype} {tuple(tensor.shape)} {content}"

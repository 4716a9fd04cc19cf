"""Types of weights, and bringing a model to another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""The types to export to, and what safetensors calls them."""

_KEYS = ("dtype", "torch_dtype")


def cast(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor in another type, if it is one of floating-point numbers. Raises UsageError when they do not fit."""
    if not tensor.is_floating_point():
        return tensor
    converted = tensor.to(dtype)
    if not converted.isfinite().all() and tensor.isfinite().all():
        raise UsageError(f"{name} has values beyond the range of {str(dtype).removeprefix('torch.')}: "
                         "export with --dtype bfloat16 or float32")
    return converted


def set_dtype(config: dict[str, Any], dtype: str) -> None:
    """In a model's configuration, and in those of the parts that a composed model has."""
    for key in _KEYS:
        if key in config:
            config[key] = dtype
    for part in config.values():
        if isinstance(part, dict):
            set_dtype(part, dtype)

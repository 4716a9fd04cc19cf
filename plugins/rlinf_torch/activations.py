"""What is kept of a forward pass for the backward pass: `trainer.activations`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

Keeping = Callable[[], AbstractContextManager[Any]]
"""Makes what a forward pass through the decoder runs in."""

Kept = tuple[torch.device, Tensor]
"""A tensor and the device that it is wanted on."""


def arrange(model: Any, choice: str) -> Keeping:
    """Set a model up for `keep`, `recompute` or `offload`."""
    if choice != "keep":
        recompute_layers(model)
    return (lambda: in_host_memory(model)) if choice == "offload" else nullcontext


def recompute_layers(model: Any) -> None:
    """Drop each decoder layer's activations and compute them again, from its input, in the backward pass."""
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    for layer in model.get_decoder().layers:
        # transformers does it in training mode only; the flag alone, since `train()` would also switch dropout on
        layer.training = True


def in_host_memory(model: Any) -> AbstractContextManager[Any]:
    """Within it, what is kept on a device waits in host memory, but for the model's own tensors, which stay anyway."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def pack(tensor: Tensor) -> Kept:
        if tensor.device.type == "cpu" or tensor.untyped_storage().data_ptr() in own:
            return tensor.device, tensor
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.device.type == "cuda")
        return tensor.device, host.copy_(tensor, non_blocking=True)

    def unpack(kept: Kept) -> Tensor:
        device, tensor = kept
        return tensor.to(device, non_blocking=True)

    return saved_tensors_hooks(pack, unpack)

"""Configuration keys of the `torch` trainer."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key


@dataclass(frozen=True)
class TorchTrainerConfig:
    """Keys of `trainer.name=torch`."""

    lr: float = key(1e-6, gt=0)
    """Peak learning rate of AdamW."""
    schedule: str = key("constant", choices=("constant", "linear", "cosine"))
    """Learning rate after the warm-up: held, or brought down to 0 at the last optimiser step of the run."""
    warmup_steps: int = key(0, ge=0)
    """Optimiser steps over which the learning rate rises to `lr`, linearly."""
    betas: tuple[float, float] = key((0.9, 0.99), ge=0, lt=1)
    """Decay of AdamW's running means of gradients and of squared gradients."""
    weight_decay: float = key(0.0, ge=0)
    """AdamW's weight decay; norms and biases have none."""
    max_grad_norm: float = key(1.0, gt=0)
    """Gradients are scaled down to this global norm (L2)."""
    micro_batch_tokens: int = key(16384, ge=1)
    """Most tokens, padding included, that pass through the model at once; changes memory and speed, not the result."""
    gradient_checkpointing: bool = False
    """Recompute each layer's activations in the backward pass instead of keeping them: less memory, a third slower."""
    train_layers: int = key(0, ge=0)
    """Train the last N decoder layers only, everything else stays as it is; 0 trains everything."""
    dtype: str = key("float32", choices=("float32", "bfloat16"))
    """Type of the model's arithmetic. Weights, gradients and optimiser state are float32 with either."""

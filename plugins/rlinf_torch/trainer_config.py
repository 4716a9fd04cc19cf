"""Configuration keys of the `torch` trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, ClassVar

from rlinf_cli.api import PluginError, key


@dataclass(frozen=True)
class TorchTrainerConfig:
    """Keys of `trainer.name=torch`."""

    trains_critics: ClassVar[bool] = True
    trains_policies: ClassVar[bool] = True

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
    micro_batch_steps: int = key(4096, ge=1)
    """Most steps of environments that pass through a policy at once; changes memory and speed, not the result."""
    activations: str = key("keep", choices=("keep", "recompute", "offload"))
    """What the backward pass needs of the decoder layers: kept; recomputed from the input of each layer (less memory, a
    third slower); or that with the inputs in host memory (a GPU then holds one layer's)."""
    offload: str = key("auto", choices=("auto", "keep", "file"))
    """What becomes of weights and optimiser state while other roles have the device: they stay (`keep`), or wait in a file
    in the directory for temporary files (`file`); `auto`: a GPU's wait in host memory, on a CPU they stay."""
    train_layers: int = key(0, ge=0)
    """Train the last N decoder layers only, everything else stays as it is; 0 trains everything."""
    lora_rank: int = key(0, ge=0)
    """Train a low-rank adapter (LoRA) of this rank and leave the weights as they are; 0 trains the weights."""
    lora_alpha: float = key(32.0, gt=0)
    """The adapter is added to the weights times `lora_alpha / lora_rank`."""
    lora_targets: list[str] = field(default_factory=list)
    """Linear layers that get an adapter, by the end of their names (`q_proj`); empty: all of the decoder layers'."""
    dtype: str = key("float32", choices=("float32", "bfloat16"))
    """Type of the model's arithmetic. What is trained, gradients and optimiser state are float32 with either."""
    frozen_dtype: str = key("float32", choices=("float32", "bfloat16"))
    """Type in which the matrices beneath an adapter, and those of a reference model, are kept: with `dtype=bfloat16`,
    bfloat16 takes half the memory and computes the same."""

    def problems_with(self, config: Any) -> Iterator[str]:
        """What of the whole configuration does not go together, a sentence each."""
        for name in "lora_rank", "train_layers":
            if config.env.name and getattr(self, name):
                yield (f"trainer.{name}={getattr(self, name)} is for language models, and env.name={config.env.name} is set: an "
                       "environment's policy is trained whole, leave it out")

    def problems(self) -> Iterator[str]:
        """What contradicts itself. Raises PluginError when an adapter is wanted and peft is not there."""
        if self.lora_rank and self.train_layers:
            yield (f"trainer.lora_rank={self.lora_rank} and trainer.train_layers={self.train_layers} contradict each other: "
                   "an adapter leaves all weights as they are (lora_targets chooses where it acts)")
        if self.lora_targets and not self.lora_rank:
            yield "trainer.lora_targets is set, but trainer.lora_rank is 0: give the adapter's rank, e.g. trainer.lora_rank=16"
        if self.frozen_dtype == "bfloat16" and self.dtype == "float32":
            yield ("trainer.frozen_dtype=bfloat16 needs trainer.dtype=bfloat16: in float32 arithmetic, rounded weights are "
                   "another model")
        if self.lora_rank and find_spec("peft") is None:
            raise PluginError(f"trainer.lora_rank={self.lora_rank} needs peft, not installed here; run: "
                              "pip install 'rlinf-cli[lora]'")

"""Configuration keys of the `torch` engine."""

from __future__ import annotations

from dataclasses import dataclass

from rlinf_cli.api import key


@dataclass(frozen=True)
class TorchEngineConfig:
    """Generation in the worker's own process."""

    slots: int = key(128, ge=1)
    """Most responses that are generated at the same time; memory is taken as they are needed."""
    dtype: str = key("float32", choices=("float32", "bfloat16"))
    """Type of the weights and of the key-value cache."""
    batch_invariant: bool = False
    """Compute every response as if it were the only one, to the last bit: prompts are read one by one, and each decode step
    computes all slots. Slower; a run with `deterministic` does so."""
    offload: str = key("auto", choices=("auto", "keep", "cache", "weights"))
    """What leaves the device while other roles have it: nothing (`keep`), the key-value cache (`cache`), or that and the
    weights (`weights`), which a GPU's engine keeps in host memory and a CPU's in a file in the directory for temporary
    files; `auto`: `weights` on a GPU, `keep` on a CPU."""

"""What the trainer writes and takes up again: the policy, AdamW's moments, the count of steps.

No pickle: safetensors and JSON only, so that loading runs no code.
"""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file, save_file

from rlinf_torch.fit import require_fit
from rlinf_torch.optimiser import Optimiser
from rlinf_torch.policy import Policy

MOMENTS, PROGRESS = "optimizer.safetensors", "trainer.json"


def save(directory: Path, policy: Policy, optimiser: Optimiser) -> None:
    """Write into an existing empty directory."""
    policy.save(directory)
    save_file({name: tensor.contiguous() for name, tensor in optimiser.state().items()}, directory / MOMENTS)
    (directory / PROGRESS).write_text(json.dumps({"format": 1, "optimizer_steps": optimiser.steps}) + "\n")


def load(directory: Path, policy: Policy, optimiser: Optimiser) -> None:
    """Take up what `save` wrote. Raises ValueError naming what does not fit, and then changes nothing."""
    progress = json.loads((directory / PROGRESS).read_text())
    if progress.get("format") != 1:
        raise ValueError(f"{directory / PROGRESS} has format {progress.get('format')}, this version reads format 1")
    steps = progress["optimizer_steps"]
    weights, moments = policy.read(directory), load_file(directory / MOMENTS)
    require_fit(optimiser.expected(steps), moments, directory / MOMENTS)
    policy.take(weights)
    optimiser.restore(moments, steps)

"""What the trainer writes and takes up again: a Hugging Face directory, AdamW's moments, the count of steps.

No pickle: safetensors and JSON only, so that loading runs no code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf_cli.api import load_causal_lm
from rlinf_torch.optimiser import Optimiser

MODEL, MOMENTS, PROGRESS = "model", "optimizer.safetensors", "trainer.json"
TOKENIZER_FILES = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt",
                   "chat_template*")
NAMED = 5
"""How many names an error lists."""


def named_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The model's weights by name, detached, each once: of tied ones the first name."""
    seen = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor.detach()


def read_tokenizer(directory: Path) -> dict[str, bytes]:
    """The tokenizer's files, kept as they are, since the directory may be gone when the model is saved."""
    return {path.name: path.read_bytes() for pattern in TOKENIZER_FILES for path in sorted(directory.glob(pattern))}


def save(directory: Path, model: Any, tokenizer: Mapping[str, bytes], optimiser: Optimiser) -> None:
    """Write into an existing empty directory."""
    model.save_pretrained(directory / MODEL)
    for name, content in tokenizer.items():
        (directory / MODEL / name).write_bytes(content)
    save_file({name: tensor.contiguous() for name, tensor in optimiser.state().items()}, directory / MOMENTS)
    (directory / PROGRESS).write_text(json.dumps({"format": 1, "optimizer_steps": optimiser.steps}) + "\n")


def load(directory: Path, model: Any, optimiser: Optimiser) -> None:
    """Take up what `save` wrote. Raises ValueError naming what does not fit, and then changes nothing."""
    progress = json.loads((directory / PROGRESS).read_text())
    if progress.get("format") != 1:
        raise ValueError(f"{directory / PROGRESS} has format {progress.get('format')}, this version reads format 1")
    steps = progress["optimizer_steps"]
    moments = load_file(directory / MOMENTS)
    weights = dict(named_weights(load_causal_lm(directory / MODEL, "float32")))
    own = dict(named_weights(model))
    _require_fit(own, weights, directory / MODEL)
    _require_fit(optimiser.expected(steps), moments, directory / MOMENTS)
    for name, tensor in own.items():
        tensor.copy_(weights[name])
    optimiser.restore(moments, steps)


def _require_fit(own: Mapping[str, Tensor], found: Mapping[str, Tensor], where: Path) -> None:
    misfits = {
        "missing": [name for name in own if name not in found],
        "left over": [name for name in found if name not in own],
        "wrong shape": [f"{name} {tuple(found[name].shape)} instead of {tuple(own[name].shape)}"
                        for name in own if name in found and own[name].shape != found[name].shape],
    }
    if any(misfits.values()):
        listed = "; ".join(f"{kind}: {_some(names)}" for kind, names in misfits.items() if names)
        raise ValueError(f"{where} does not fit the trainer's model ({listed}): "
                         "resume with the model and trainer settings of the run that wrote it")


def _some(names: list[str]) -> str:
    rest = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {rest} more" if rest > 0 else "")

"""Which files of a model directory hold its weights, and which its tokenizer."""

from __future__ import annotations

import json
from pathlib import Path

SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_TOKENIZER = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "chat_template*")


def weight_files(path: Path) -> list[str]:
    """Names of the safetensors files that make up the model of a directory; [] when it has none."""
    if (path / INDEX).is_file():
        return sorted(set(json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    return [SAFETENSORS] if (path / SAFETENSORS).is_file() else []


def tokenizer_files(path: Path) -> list[Path]:
    """The files that a directory's tokenizer is made of."""
    return [found for pattern in _TOKENIZER for found in sorted(path.glob(pattern)) if found.is_file()]

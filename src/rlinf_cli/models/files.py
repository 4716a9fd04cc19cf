"""Which files of a model directory hold its weights."""

from __future__ import annotations

import json
from pathlib import Path

SAFETENSORS = "model.safetensors"
INDEX = "model.safetensors.index.json"


def weight_files(path: Path) -> list[str]:
    """Names of the safetensors files that make up the model of a directory; [] when it has none."""
    if (path / INDEX).is_file():
        return sorted(set(json.loads((path / INDEX).read_text(encoding="utf-8"))["weight_map"].values()))
    return [SAFETENSORS] if (path / SAFETENSORS).is_file() else []

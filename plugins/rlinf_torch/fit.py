"""Whether saved tensors are those that a trainer has room for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

NAMED = 5
"""How many names an error lists."""


def require_fit(own: Mapping[str, Tensor], found: Mapping[str, Tensor], where: Path) -> None:
    """Raises ValueError naming what is missing, left over or of another shape."""
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

"""Where each weight of a model lies in an engine's own layout, and filling and reading it under its own name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

SHOWN = 4
"""Names that an error lists of each kind."""


@dataclass(frozen=True)
class Place:
    """A weight of shape `shape` in its Hugging Face layout, held by `view` (of that many elements, maybe permuted)."""

    shape: tuple[int, ...]
    view: Tensor

    def write(self, tensor: Tensor) -> None:
        self.view.copy_(tensor.reshape(self.view.shape))

    def read(self) -> Tensor:
        return self.view.reshape(self.shape)


def named(places: Mapping[str, Place]) -> Iterator[tuple[str, Tensor]]:
    """Every weight under its Hugging Face name; without a copy where the layouts agree."""
    return ((name, place.read()) for name, place in places.items())


def fill(places: Mapping[str, Place], tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write each tensor to its place. Raises ValueError naming what is missing, left over or of the wrong shape."""
    missing, left_over, wrong = dict(places), [], []
    for name, tensor in tensors:
        place = missing.pop(name, None)
        if place is None:
            left_over.append(name)
        elif tuple(tensor.shape) != place.shape:
            wrong.append(f"{name} {tuple(tensor.shape)} instead of {place.shape}")
        else:
            place.write(tensor)
    kinds = {"missing": list(missing), "left over": left_over, "wrong shape": wrong}
    problems = [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]
    if problems:
        raise ValueError("the weights do not fit the model; " + "; ".join(problems))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")

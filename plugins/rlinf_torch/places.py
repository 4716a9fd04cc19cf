"""Where each weight of a model lies in an engine's own layout, and filling and reading it under its own name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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

    def is_plain(self) -> bool:
        """Whether the weight lies there as in its Hugging Face layout."""
        return tuple(self.view.shape) == self.shape and self.view.is_contiguous()

    def holds(self, tensor: Tensor) -> bool:
        """Whether a tensor is this place's own memory."""
        return self.is_plain() and tensor.is_contiguous() and tensor.data_ptr() == self.view.data_ptr()


def named(places: Mapping[str, Place]) -> Iterator[tuple[str, Tensor]]:
    """Every weight under its Hugging Face name; without a copy where the layouts agree."""
    return ((name, place.read()) for name, place in places.items())


def fill(places: Mapping[str, Place], tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Write each tensor to its place. Raises ValueError naming what is missing, left over or of the wrong shape."""
    for place, tensor in _matched(places, tensors):
        place.write(tensor)


def overwrite(places: Mapping[str, Place], tensors: Iterable[tuple[str, Tensor]]) -> int:
    """As `fill`, but nothing is written unless all fit, and a place's own memory is not copied; the bytes of the latter."""
    pairs = list(_matched(places, tensors))
    for place, tensor in pairs:
        if not place.holds(tensor):
            place.write(tensor)
    return sum(tensor.nbytes for place, tensor in pairs if place.holds(tensor))


def end_to_end(tensors: Sequence[Tensor]) -> Tensor | None:
    """Tensors whose rows follow one another in memory, as one, without a copy; None where they do not."""
    first, end = tensors[0], tensors[0].data_ptr()
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.data_ptr() != end or not _same_storage(tensor, first):
            return None
        end += tensor.nbytes
    return first if len(tensors) == 1 else first.as_strided((sum(map(len, tensors)), *first.shape[1:]), first.stride())


def _same_storage(one: Tensor, other: Tensor) -> bool:
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _matched(places: Mapping[str, Place], tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[Place, Tensor]]:
    """Each tensor with its place; at the end, raises ValueError if some did not fit."""
    missing, left_over, wrong = dict(places), [], []
    for name, tensor in tensors:
        place = missing.pop(name, None)
        if place is None:
            left_over.append(name)
        elif tuple(tensor.shape) != place.shape:
            wrong.append(f"{name} {tuple(tensor.shape)} instead of {place.shape}")
        else:
            yield place, tensor
    kinds = {"missing": list(missing), "left over": left_over, "wrong shape": wrong}
    problems = [f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names]
    if problems:
        raise ValueError("the weights do not fit the model; " + "; ".join(problems))


def _listed(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")

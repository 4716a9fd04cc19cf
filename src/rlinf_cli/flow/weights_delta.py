"""What of the weights differs from the version before, for links that are slower than comparing.

In bfloat16 a small optimiser step moves few elements: most updates are smaller than the spacing of the numbers. What
has not changed does not travel then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.flow.weights_layout import Bytes, Change, Entry

WORTH = 0.9
"""Changes that are larger than this share of everything are not worth writing down."""

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_WIDTHS = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "float32": 4}


def difference(old: Bytes, new: Bytes, entries: Sequence[Entry], room: Callable[[int], Bytes]) -> tuple[Change, ...] | None:
    """Write the changes of all entries from `old` to `new` into the array that `room(bytes)` gives; None when that would
    be about as much as everything."""
    plan, end = [], 0
    for entry in entries:
        count = int(np.count_nonzero(_elements(old, entry) != _elements(new, entry)))
        form, length = _cheapest(entry, count)
        plan.append(Change(form, count, end, length))
        end = -(-(end + length) // 8) * 8
    if end > WORTH * sum(entry.length for entry in entries):
        return None
    target = room(end)
    for entry, change in zip(entries, plan, strict=True):
        at = change.offset
        for piece in _encoded(change.form, _elements(old, entry), _elements(new, entry)):
            target[at : at + piece.nbytes] = piece.view(np.uint8)
            at += piece.nbytes
    return tuple(plan)


def apply(change: Change, data: Bytes, entry: Entry, held: Bytes) -> None:
    """Bring one entry of `held`, the version before, up to date. `data`: the change's bytes."""
    elements = _elements(held, entry)
    if change.form == "all":
        held[entry.offset : entry.offset + entry.length] = data
    elif change.form == "places":
        places = data[: 4 * change.count].view(np.uint32)
        elements[places] = data[4 * change.count :].view(elements.dtype)
    else:
        bits = _bitmap_bytes(len(elements))
        changed = np.unpackbits(data[:bits], count=len(elements)).view(np.bool_)
        elements[changed] = data[bits:].view(elements.dtype)


def _cheapest(entry: Entry, count: int) -> tuple[str, int]:
    width = _width(entry)
    lengths = {"places": count * (4 + width), "bitmap": _bitmap_bytes(entry.length // width) + count * width,
               "all": entry.length}
    form = min(lengths, key=lambda name: lengths[name])
    return form, lengths[form]


def _encoded(form: str, old: NDArray[np.unsignedinteger], new: NDArray[np.unsignedinteger]) -> Iterator[NDArray[Any]]:
    if form == "all":
        yield new
        return
    changed = old != new
    if form == "places":
        yield np.flatnonzero(changed).astype(np.uint32)
    else:
        bits = np.zeros(_bitmap_bytes(len(new)), np.uint8)
        bits[: -(-len(new) // 8)] = np.packbits(changed)
        yield bits
    yield new[changed]


def _bitmap_bytes(elements: int) -> int:
    """Rounded up, so that the elements behind it are aligned."""
    return -(-elements // 64) * 8


def _elements(array: Bytes, entry: Entry) -> NDArray[np.unsignedinteger]:
    return array[entry.offset : entry.offset + entry.length].view(_UNSIGNED[_width(entry)])


def _width(entry: Entry) -> int:
    return _WIDTHS.get(entry.dtype, 8)

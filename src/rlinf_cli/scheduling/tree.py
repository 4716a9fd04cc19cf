"""How stages share devices: a tree of turns and of neighbours.

    InTurn(a, b)       a, then b, on the same devices       (temporal)
    SideBySide(a, b)   at once, each on devices of its own  (spatial)

A tree says on how many devices each stage runs; `layout` says on which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Leaf:
    stage: str
    devices: int
    """0: it takes no device from anybody."""


@dataclass(frozen=True)
class InTurn:
    """`per_chunk`: the two take turns within each chunk of a pipeline; else the second begins when the first has finished the
    whole batch."""

    first: Tree
    second: Tree
    per_chunk: bool = False


@dataclass(frozen=True)
class SideBySide:
    first: Tree
    second: Tree


Tree: TypeAlias = Leaf | InTurn | SideBySide


def leaves(tree: Tree) -> Iterator[Leaf]:
    """From producers to consumers."""
    if isinstance(tree, Leaf):
        yield tree
    else:
        yield from leaves(tree.first)
        yield from leaves(tree.second)


def width(tree: Tree) -> int:
    """Devices that it needs."""
    if isinstance(tree, Leaf):
        return tree.devices
    first, second = width(tree.first), width(tree.second)
    return max(first, second) if isinstance(tree, InTurn) else first + second


def layout(tree: Tree, first: int = 0) -> Mapping[str, range]:
    """Stage -> its devices, which are numbered from `first` on."""
    if isinstance(tree, Leaf):
        return {tree.stage: range(first, first + tree.devices)}
    beside = first + width(tree.first) if isinstance(tree, SideBySide) else first
    return {**layout(tree.first, first), **layout(tree.second, beside)}


def text(tree: Tree) -> str:
    """`rollout 40 | (inference, train) 24`: `|` side by side, `,` in turn."""
    if isinstance(tree, Leaf):
        return f"{tree.stage} {tree.devices}" if tree.devices else tree.stage
    mark = " | " if isinstance(tree, SideBySide) else ", "
    return mark.join(f"({text(part)})" if not isinstance(part, Leaf) and type(part) is not type(tree) else text(part)
                     for part in (tree.first, tree.second))

"""How stages share devices: a tree of turns and of neighbours.

    InTurn(a, b)       a, then b, on the same devices       (temporal)
    SideBySide(a, b)   at once, each on devices of its own  (spatial)

A tree says on how many devices each stage runs; `layout` says on which.
"""

from __future__ import annotations

import re
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
MARKS = ("|", ",", "~")
"""Side by side, in turn, in turn within each chunk: as trees are written."""


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
    """`rollout 40 | (inference 24, train 24)`: `|` side by side, `,` in turn, `~` in turn within each chunk."""
    if isinstance(tree, Leaf):
        return f"{tree.stage} {tree.devices}" if tree.devices else tree.stage
    mark = _mark(tree)
    joint = f"{mark} " if mark == "," else f" {mark} "
    return joint.join(text(part) if isinstance(part, Leaf) or _mark(part) == mark else f"({text(part)})"
                      for part in (tree.first, tree.second))


def _mark(tree: InTurn | SideBySide) -> str:
    return "|" if isinstance(tree, SideBySide) else "~" if tree.per_chunk else ","


def parse(words: str) -> Tree:
    """The tree that `text` wrote; what is joined by the same mark is taken from the left. Raises ValueError, with what was
    found and where, for anything else."""
    tokens = re.findall(r"[(),|~]|[^\s(),|~]+", words)
    tree = _parse(tokens)
    if tokens:
        raise ValueError(f"'{tokens[0]}' is too much, behind '{text(tree)}'")
    return tree


def _parse(tokens: list[str]) -> Tree:
    """What is at the beginning of `tokens`, which loses it: parts joined by one mark."""
    tree, mark = _part(tokens), ""
    while tokens and tokens[0] in MARKS:
        if mark and tokens[0] != mark:
            raise ValueError(f"'{mark}' and '{tokens[0]}' beside each other behind '{text(tree)}': put what belongs together "
                             "in ()")
        mark = tokens.pop(0)
        second = _part(tokens)
        tree = SideBySide(tree, second) if mark == "|" else InTurn(tree, second, mark == "~")
    return tree


def _part(tokens: list[str]) -> Tree:
    word = tokens.pop(0) if tokens else "the end"
    if word == "(":
        tree = _parse(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise ValueError(f"a ')' is missing behind '{text(tree)}'")
        return tree
    if word in ("the end", ")", *MARKS):
        raise ValueError(f"a role is missing before {word if word == 'the end' else repr(word)}")
    return Leaf(word, int(tokens.pop(0)) if tokens and tokens[0].isascii() and tokens[0].isdigit() else 0)

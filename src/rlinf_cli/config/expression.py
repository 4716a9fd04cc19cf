"""Several things with weights in one text: `math + 0.2*format`.

Parts are joined by a `+` with blanks around it, so that a name may hold a `+` of its own; a number before a `*` is a
weight, anything else before a `*` belongs to the name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf_cli.errors import UsageError

_JOINT = re.compile(r"(?:^|\s)\+(?=\s|$)")
_WEIGHTED = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*\*\s*(.*)")


@dataclass(frozen=True)
class Term:
    """A name as it is written, and what it counts for."""

    name: str
    weight: float = 1.0


def terms(text: str) -> list[Term]:
    """The parts of an expression; a text without ` + ` is one. Raises UsageError in one sentence."""
    pieces = _JOINT.split(text)
    found = [_term(piece.strip()) for piece in pieces] if len(pieces) > 1 else [_term(text)]
    check_distinct([term.name for term in found])
    return found


def check_distinct(names: Sequence[str]) -> None:
    """Raise UsageError when a name is there twice."""
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UsageError(f"'{name}' is there twice: name it once")


def _term(piece: str) -> Term:
    weighted = _WEIGHTED.fullmatch(piece)
    name, weight = (weighted[2], float(weighted[1])) if weighted else (piece, 1.0)
    if not name:
        raise UsageError("a name is missing: parts are written NAME + WEIGHT*NAME, as in math + 0.2*format")
    if not (weight > 0 and math.isfinite(weight)):
        raise UsageError(f"'{name}' has the weight {weighted[1] if weighted else weight}: a weight is a finite number above 0")
    return Term(name, weight)

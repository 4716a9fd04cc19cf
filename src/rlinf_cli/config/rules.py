"""How a key is declared: its default, and what its value must keep to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """What a value must keep to; each element, if the value is a list."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    choices: tuple[Any, ...] = ()
    pattern: str = ""
    """Regular expression that the whole text matches."""
    form: str = ""
    """The pattern in words."""

    def __str__(self) -> str:
        bounds = [("at least", self.ge), ("more than", self.gt), ("at most", self.le), ("less than", self.lt)]
        parts = [f"{words} {bound}" for words, bound in bounds if bound is not None]
        if self.choices:
            parts.append("one of " + ", ".join(map(str, self.choices)))
        return " and ".join([*parts, self.form] if self.form else parts)

    def allows(self, value: Any) -> bool:
        """Whether the value, or each element of a list, keeps to the rule; None always does."""
        if value is None:
            return True
        if isinstance(value, (list, tuple)):
            return all(self.allows(element) for element in value)
        return self._in_bounds(value) and self._is_listed(value)

    def _in_bounds(self, value: Any) -> bool:
        return ((self.ge is None or value >= self.ge) and (self.gt is None or value > self.gt)
                and (self.le is None or value <= self.le) and (self.lt is None or value < self.lt))

    def _is_listed(self, value: Any) -> bool:
        return ((not self.choices or value in self.choices)
                and (not self.pattern or re.fullmatch(self.pattern, value) is not None))


def key(default: Any = MISSING, *, ge: float | None = None, gt: float | None = None, le: float | None = None,
        lt: float | None = None, choices: Sequence[Any] = (), pattern: str = "", form: str = "") -> Any:
    """Declare a configuration key of a dataclass: its default and the limits of its value.

    A key without a default must be set by the user. `pattern` is matched by the whole text, `form` says it in words.

    Example::

        @dataclass(frozen=True)
        class Politeness:
            bonus: float = key(0.1, ge=0, le=1)
            \"\"\"Added for each polite word.\"\"\"
    """
    rule = Rule(ge, gt, le, lt, tuple(choices), pattern, form)
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata={"rule": rule})
    return field(default=default, metadata={"rule": rule})

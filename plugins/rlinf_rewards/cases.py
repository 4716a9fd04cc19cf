"""Tests of a program as data sets write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Exchange:
    """What the program reads, and what it is to print."""

    input: str
    output: str


@dataclass(frozen=True)
class Cases:
    """The tests of a row: one of the two is empty."""

    statements: tuple[str, ...] = ()
    """Python, `assert` statements most likely, each a test."""
    exchanges: tuple[Exchange, ...] = ()

    def __len__(self) -> int:
        return len(self.statements) + len(self.exchanges)


def read_cases(tests: Any) -> Cases:
    """A list of statements, a list of `{"input", "output"}`, or `{"inputs": [...], "outputs": [...]}`; any of these as
    JSON text; or one text with statements, which is one test. Raises ValueError for anything else, and for no tests."""
    tests = _parsed(tests)
    cases = _read(tests)
    if not len(cases):
        raise ValueError("the row has no tests")
    return cases


def _parsed(tests: Any) -> Any:
    if not isinstance(tests, str):
        return tests
    try:
        found = json.loads(tests)
    except ValueError:
        return [tests] if tests.strip() else []
    return found if isinstance(found, (list, dict)) else [tests]


def _read(tests: Any) -> Cases:
    if isinstance(tests, Mapping):
        return _columns(tests)
    found: list[Any] = list(tests) if isinstance(tests, Sequence) or hasattr(tests, "tolist") else [None]
    if all(isinstance(test, str) for test in found):
        return Cases(statements=tuple(found))
    if all(isinstance(test, Mapping) and {"input", "output"} <= set(test) for test in found):
        return Cases(exchanges=tuple(Exchange(_text(test["input"]), _text(test["output"])) for test in found))
    raise ValueError(f"the tests {tests!r:.100} are neither statements nor pairs of input and output")


def _columns(tests: Mapping[str, Any]) -> Cases:
    if tests.get("fn_name"):
        raise ValueError(f"the tests call a function (fn_name={tests['fn_name']!r}), which is not read: write them as assert "
                         "statements")
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if inputs is None or outputs is None or len(inputs) != len(outputs):
        raise ValueError(f"the tests {tests!r:.100} are not as many inputs as outputs")
    return Cases(exchanges=tuple(Exchange(_text(one), _text(other)) for one, other in zip(inputs, outputs)))


def _text(value: Any) -> str:
    """Some data sets write lines as a list."""
    return value if isinstance(value, str) else "\n".join(map(str, value)) if isinstance(value, list) else str(value)

"""A log of what state machines were told and what they answered, from which the same machines can be run again.

A record is a line of JSON: the machine's name, the event, the instructions. Tuples are lists there; everything else that
JSON does not know is an object of one entry, whose key names its type: `{"channel_events.Put": [1, "samples", ...]}`. Only
what `rlinf_cli.state` defines can be read back, so a line cannot make anything else. What items carry (`payload`) is left
out: no machine reads it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Protocol

_PACKAGE = "rlinf_cli.state."
_LEFT_OUT = "payload"


class Machine(Protocol):
    def handle(self, event: Any, /) -> Iterable[Any]: ...


@dataclass(frozen=True, slots=True)
class Record:
    machine: str
    event: Any
    instructions: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a replay parts from the record. `number`: of the record, from 1."""

    number: int
    record: Record
    instructions: tuple[Any, ...]
    """What the machine answered this time."""


def replay(records: Iterable[Record], machines: Mapping[str, Machine]) -> Difference | None:
    """Tell fresh machines the same events; the first answer that is another one.

    Raises KeyError when a record is of a machine that is not given.
    """
    for number, record in enumerate(records, 1):
        answers = tuple(machines[record.machine].handle(record.event))
        # as text, so that what is left out of a record does not count
        if _text(answers) != _text(record.instructions):
            return Difference(number, record, answers)
    return None


def encode(record: Record) -> str:
    """A line, with its end."""
    return _text((record.machine, record.event, record.instructions)) + "\n"


def decode(line: str) -> Record:
    """Raises ValueError when the line is not a record."""
    found = json.loads(line)
    if not isinstance(found, list) or len(found) != 3:
        raise ValueError(f"not a record of a journal: {line[:80]!r}")
    machine, event, instructions = map(_decoded, found)
    return Record(machine, event, instructions)


def read(lines: Iterable[str]) -> Iterator[Record]:
    """The records; a last line without an end, left by a process that was killed, is skipped."""
    for line in lines:
        if line.endswith("\n"):
            yield decode(line)


# ---- values ----


def _text(value: Any) -> str:
    return json.dumps(_encoded(value), separators=(",", ":"))


def _encoded(value: Any) -> Any:
    kind = type(value)
    if value is None or kind in (int, str, float, bool):
        return value
    if kind is tuple:
        return [_encoded(one) for one in value]
    if kind is list:
        return {"list": [_encoded(one) for one in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_encoded(name), _encoded(one)] for name, one in value.items()]}
    if isinstance(value, (set, frozenset)):
        return {"set": sorted(map(_encoded, value))}
    return {_tag(kind): [None if name == _LEFT_OUT else _encoded(getattr(value, name)) for name in _names(kind)]}  # type: ignore[arg-type]


def _decoded(found: Any) -> Any:
    if isinstance(found, list):
        return tuple(map(_decoded, found))
    if not isinstance(found, dict):
        return found
    [(tag, values)] = found.items()
    if tag == "list":
        return list(map(_decoded, values))
    if tag == "dict":
        return {_decoded(name): _decoded(one) for name, one in values}
    if tag == "set":
        return frozenset(map(_decoded, values))
    return _kind(tag)(*map(_decoded, values))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields  # type: ignore[attr-defined]


@cache
def _tag(kind: type) -> str:
    if not kind.__module__.startswith(_PACKAGE) or not (is_dataclass(kind) or hasattr(kind, "_fields")):
        raise TypeError(f"a journal holds numbers, texts, and what {_PACKAGE.rstrip('.')} defines, not {kind.__qualname__}")
    return f"{kind.__module__.removeprefix(_PACKAGE)}.{kind.__qualname__}"


@cache
def _kind(tag: str) -> type:
    module, _, name = tag.rpartition(".")
    kind = getattr(importlib.import_module(_PACKAGE + module), name, None)
    if not isinstance(kind, type) or _tag(kind) != tag:
        raise ValueError(f"not a type that a journal holds: {tag}")
    return kind

"""From what was written to a typed value. The type of the key decides how a text is read: `name=007` stays a text."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_NEEDED = {int: "an integer", float: "a number", bool: "true or false", str: "text"}
_PLURALS = {int: "integers", float: "numbers", bool: "true or false", str: "texts"}


def convert(annotation: Any, value: Any) -> Any:
    """The value as the annotated type; texts are read as that type.

    Raises ValueError saying what is needed.
    """
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return _first_that_fits(annotation, value)
    if origin is Literal:
        return _choice(get_args(annotation), value)
    if origin in (list, tuple):
        return _sequence(annotation, value)
    if annotation is type(None) and value is None:
        return None
    readers = {int: _integer, float: _number, bool: _truth, str: _text}
    if value is None or annotation not in readers:
        raise ValueError(f"null is not allowed, {needed(annotation)} is needed")
    return readers[annotation](value)


def needed(annotation: Any) -> str:
    """What a value of this type is, in words. Raises TypeError for a type that a key cannot have."""
    if annotation in _NEEDED:
        return _NEEDED[annotation]
    if annotation is type(None):
        return "null"
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(map(needed, arguments))
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is list or (origin is tuple and arguments[1:] == (...,)):
        return f"a list of {_PLURALS.get(arguments[0]) or needed(arguments[0])}, as in [a, b],"
    if origin is tuple:
        return f"a list of {len(arguments)} values ({', '.join(map(needed, arguments))})"
    raise TypeError(f"a key cannot have the type {type_name(annotation)}")


def type_name(annotation: Any) -> str:
    """The type as it stands in tables: `int`, `list[str]`, `float | None`."""
    if annotation is type(None):
        return "null"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (list, tuple):
        return f"list[{', '.join(type_name(argument) for argument in arguments if argument is not ...)}]"
    return str(getattr(annotation, "__name__", annotation))


def _first_that_fits(annotation: Any, value: Any) -> Any:
    members = sorted(get_args(annotation), key=lambda member: member is not type(None))
    fitting = [result for member in members for result in _attempt(member, value)]
    if not fitting:
        raise ValueError(f"{needed(annotation)} is needed")
    return fitting[0]


def _attempt(annotation: Any, value: Any) -> list[Any]:
    """The value as that type, in a list; an empty one when it does not fit."""
    try:
        return [convert(annotation, value)]
    except ValueError:
        return []


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    for choice in choices:
        if str(choice) == str(value):
            return choice
    raise ValueError(f"must be one of {', '.join(map(str, choices))}")


def _sequence(annotation: Any, value: Any) -> Any:
    arguments = get_args(annotation)
    if isinstance(value, (str, Mapping)) or not isinstance(value, Sequence):
        raise ValueError(f"{needed(annotation)} is needed")
    if get_origin(annotation) is list:
        return [convert(arguments[0], element) for element in value]
    if arguments[1:] == (...,):
        return tuple(convert(arguments[0], element) for element in value)
    if len(value) != len(arguments):
        raise ValueError(f"{needed(annotation)} is needed, there are {len(value)}")
    return tuple(convert(member, element) for member, element in zip(arguments, value))


def _integer(value: Any) -> int:
    number = _parsed(value)
    if number is None or not math.isfinite(number) or number != int(number):
        raise ValueError("an integer is needed")
    return int(number)


def _number(value: Any) -> float:
    number = _parsed(value)
    if number is None:
        raise ValueError("a number is needed")
    if not math.isfinite(number):
        raise ValueError("a finite number is needed")
    return float(number)


def _parsed(value: Any) -> int | float | None:
    """The number that a text or a number is, integers exact; None when it is none."""
    if isinstance(value, str):
        numbers = _parsed_as(int, value) or _parsed_as(float, value)
        return numbers[0] if numbers else None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _parsed_as(kind: type[int] | type[float], text: str) -> list[int | float]:
    try:
        return [kind(text)]
    except ValueError:
        return []


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() not in _TRUTH:
        raise ValueError("true or false is needed")
    return _TRUTH[str(value).lower()]


def _text(value: Any) -> str:
    if isinstance(value, (Sequence, Mapping)) and not isinstance(value, str):
        raise ValueError("text is needed")
    return str(value).lower() if isinstance(value, bool) else str(value)

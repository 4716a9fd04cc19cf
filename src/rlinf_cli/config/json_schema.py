"""The configuration as a JSON Schema, for editors and other programs."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rlinf_cli.config.catalogue import Entry
from rlinf_cli.config.kinds import EXPRESSIONS
from rlinf_cli.config.rules import Rule
from rlinf_cli.config.schema import SECTIONS

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string", type(None): "null"}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_INTERPOLATION = {"$ref": "#/$defs/interpolation"}


def json_schema(entries: Sequence[Entry]) -> dict[str, Any]:
    """A JSON Schema (2020-12) of a CONFIG file. Where several extensions declare one key, any of them may be meant."""
    properties: dict[str, Any] = {}
    for section, home in SECTIONS.items():
        properties[section] = _mapping({}, home.__doc__)
    for entry in (entry for entry in entries if "." not in entry.place):
        _add(properties[entry.section]["properties"] if entry.section else properties, entry.spec.field, _described(entry))
    for place, members in itertools.groupby(sorted(_nested(entries), key=_place), key=_place):
        section, _, name = place.partition(".")
        keys: dict[str, Any] = {}
        for entry in members:
            _add(keys, entry.spec.field, _described(entry))
        _add(properties[section]["properties"], name, _mapping(keys))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of rlinf",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "patternProperties": {r"\.": {"description": "A dotted key, as in `rollout.prompts: 16`."}},
        "$defs": {"interpolation": {"type": "string", "pattern": r"\$\{"}},
    }


def _nested(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Entries of extensions that may be one of several, as they are written then."""
    for entry in entries:
        if "." in entry.place:
            yield entry
        elif entry.spec.extension and entry.section in EXPRESSIONS:
            yield entry.among_several


def _place(entry: Entry) -> str:
    return entry.place


def _mapping(properties: dict[str, Any], description: str | None = None) -> dict[str, Any]:
    return {"type": ["object", "null"], **({"description": description} if description else {}),
            "additionalProperties": False, "properties": properties}


def _add(place: dict[str, Any], name: str, described: dict[str, Any]) -> None:
    place[name] = {"anyOf": [place[name], described]} if name in place else described


def _described(entry: Entry) -> dict[str, Any]:
    spec = entry.spec
    default = {} if spec.default is MISSING else {"default": spec.default}
    return {"description": f"{entry.meaning} [{entry.owner}]", **default,
            "anyOf": [_value(spec.annotation, spec.rule), _INTERPOLATION]}


def _value(annotation: Any, rule: Rule) -> dict[str, Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return {"anyOf": [_value(member, rule) for member in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list or arguments[1:] == (...,):
        return {"type": "array", "items": _value(arguments[0], rule)}
    if origin is tuple:
        return {"type": "array", "prefixItems": [_value(member, rule) for member in arguments],
                "minItems": len(arguments), "maxItems": len(arguments)}
    return {"type": _TYPES[annotation], **_limits(annotation, rule)}


def _limits(annotation: type, rule: Rule) -> dict[str, Any]:
    limits: dict[str, Any] = {"enum": list(rule.choices)} if rule.choices else {}
    if annotation in (int, float):
        bounds = {word: getattr(rule, name) for name, word in _BOUNDS.items()}
        limits |= {word: bound for word, bound in bounds.items() if bound is not None}
    if annotation is str and rule.pattern:
        limits["pattern"] = f"^({rule.pattern})$"
    return limits

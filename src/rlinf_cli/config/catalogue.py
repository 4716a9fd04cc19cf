"""Every key there is, with its meaning: for `rlinf config keys`, the documentation, and the JSON Schema."""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from rlinf_cli.config.convert import type_name
from rlinf_cli.config.fields import KeySpec, core_keys, extension_keys
from rlinf_cli.config.schema import KINDS, SECTIONS
from rlinf_cli.config.source import display
from rlinf_cli.errors import PluginError
from rlinf_cli.plugins.registry import Plugins


@dataclass(frozen=True)
class Entry:
    """A key as it is shown to users."""

    key: str
    type: str
    default: str
    """As it would be written; empty when the key must be set."""
    rule: str
    """The limits of its value in words; empty when there are none."""
    meaning: str
    owner: str
    """`core`, or the extension and the distribution that it comes from: `algorithm grpo (rlinf-cli)`."""


def catalogue(plugins: Plugins) -> list[Entry]:
    """Every key of the core and of all installed extensions, section by section."""
    found = [_entry(spec, spec.owner) for spec in core_keys().values()]
    found += [_entry(spec, owner) for spec, owner in _extension_specs(plugins)]
    places = {section: place for place, section in enumerate(["", *SECTIONS])}
    return sorted(found, key=lambda entry: places[entry.key.rpartition(".")[0]])


def _extension_specs(plugins: Plugins) -> Iterator[tuple[KeySpec, str]]:
    """The keys of extensions whose configuration can be imported, with their owners; `rlinf plugins` tells of others."""
    homes = {offer.key: info.distribution for info in plugins.plugins for offer in info.provides}
    for section, kind in KINDS.items():
        for name, extension in plugins.extensions(kind).items():
            try:
                specs = extension_keys(section, extension)
            except PluginError:
                continue
            for spec in specs.values():
                yield spec, f"{spec.owner} ({homes[kind, name]})"


def _entry(spec: KeySpec, owner: str) -> Entry:
    default = "" if spec.default is MISSING else written(spec.default)
    return Entry(spec.key, type_name(spec.annotation), default, str(spec.rule), meanings(spec.home).get(spec.field, ""),
                 owner)


def written(value: Any) -> str:
    """A default as a user would write it on the command line."""
    return display(value) or '""'


@functools.cache
def meanings(home: type) -> dict[str, str]:
    """Field -> the docstring under it, of a dataclass and those that it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(home.__mro__[:-1]):
        body = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        found |= dict(_documented(body.body))
    return found


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in zip(body, body[1:]):
        if (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
                and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            yield statement.target.id, " ".join(str(after.value.value).split())

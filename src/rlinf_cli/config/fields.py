"""The keys that there are: those of the core and those that a chosen extension adds to its section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from rlinf_cli.config.convert import convert, needed
from rlinf_cli.config.kinds import KINDS, Section
from rlinf_cli.config.rules import Rule
from rlinf_cli.config.schema import SECTIONS, TOP_LEVEL, RunConfig
from rlinf_cli.errors import PluginError
from rlinf_cli.plugins.extension import Extension


@dataclass(frozen=True)
class KeySpec:
    """One key: its type, default (MISSING when the user must set it), limits, and the dataclass that declares it."""

    key: str
    annotation: Any
    default: Any
    rule: Rule
    home: type
    owner: str = "core"
    extension: str = ""
    """Name of the extension that declares it; empty for a key of the core."""

    @property
    def field(self) -> str:
        """The key without its place."""
        return self.key.rpartition(".")[2]

    def read(self, value: Any) -> Any:
        """The typed value. Raises ValueError with the rule that it breaks."""
        typed = convert(self.annotation, value)
        if not self.rule.allows(typed):
            raise ValueError(f"must be {self.rule}")
        return typed


def core_keys() -> dict[str, KeySpec]:
    """Every key of the core."""
    specs = [spec for spec in _keys_of(RunConfig, "") if spec.key in TOP_LEVEL]
    for section, home in SECTIONS.items():
        specs += _keys_of(home, f"{section}.")
    return {spec.key: spec for spec in specs}


def extension_keys(section: Section, extension: Extension, place: str = "") -> dict[str, KeySpec]:
    """The keys that an extension adds to its section, at `place` (`reward.math`) or at the usual one.

    Raises PluginError when its configuration cannot be imported, or a key collides with one of the core.
    """
    home = config_class(section, extension)
    if home is None:
        return {}
    owner, place = f"{KINDS[section]} {extension.name}", place or usual_place(section, extension)
    taken = {f"{section}.{f.name}" for f in fields(SECTIONS[section])}
    for what, key in (("name", place), *(("key", f"{place}.{f.name}") for f in fields(home))):
        if key in taken:
            raise PluginError(f"{owner}: its {what} '{key}' ({extension.config}) is a key of the core: "
                              f"its author must rename it")
    return {spec.key: spec for spec in _keys_of(home, f"{place}.", owner, extension.name)}


def usual_place(section: Section, extension: Extension) -> str:
    """Where the keys of an extension stand: a logger's under its name, since there may always be several."""
    return f"{section}.{extension.name}" if section == "log" else section


def usable_keys(section: Section, extension: Extension, place: str = "") -> dict[str, KeySpec]:
    """The same, for extensions that nobody chose: a broken one has no keys; it is told when it is chosen."""
    try:
        return extension_keys(section, extension, place)
    except PluginError:
        return {}


def config_class(section: Section, extension: Extension) -> type | None:
    """The extension's configuration dataclass; None when it has none. A workflow has no section, so no keys."""
    home = None if section == "workflow" else extension.load_config()
    if home is not None and not is_dataclass(home):
        raise PluginError(f"{KINDS[section]} {extension.name}: its configuration {extension.config} is no dataclass")
    return home


def _keys_of(home: type, prefix: str, owner: str = "core", extension: str = "") -> list[KeySpec]:
    hints = get_type_hints(home)
    return [_key_spec(f, hints, home, prefix, owner, extension) for f in fields(home) if f.init]


def _key_spec(f: Field[Any], hints: Mapping[str, Any], home: type, prefix: str, owner: str, extension: str) -> KeySpec:
    annotation = hints[f.name]
    if extension:
        _check_type(annotation, f"{owner}: {prefix}{f.name}")
    default = f.default if f.default_factory is MISSING else f.default_factory()
    return KeySpec(f"{prefix}{f.name}", annotation, default, f.metadata.get("rule", Rule()), home, owner, extension)


def _check_type(annotation: Any, what: str) -> None:
    try:
        needed(annotation)
    except TypeError as error:
        raise PluginError(f"{what}: {error}; allowed are int, float, bool, str, Literal, and lists, tuples and unions "
                          f"of them") from error

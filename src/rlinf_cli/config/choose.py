"""Which extensions the names stand for, and with them which keys and presets there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any

from rlinf_cli.config.errors import nearest_key
from rlinf_cli.config.fields import KeySpec, core_keys, extension_keys
from rlinf_cli.config.interpolate import interpolate, is_interpolated
from rlinf_cli.config.schema import DEFAULT, KINDS, Section
from rlinf_cli.config.source import Given
from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.registry import Plugins

_HINTS: Mapping[str, str] = {
    "model": ". A directory is written with a '/', a hub name as ORG/NAME",
    "data": ". A file's name ends in .jsonl",
    "reward": ". A function is written module:function",
}


@dataclass
class Choice:
    """The extensions in use and what follows from them."""

    specs: dict[str, KeySpec] = field(default_factory=core_keys)
    """Every key that can be set."""
    extensions: dict[Section, Extension | None] = field(default_factory=dict)
    """None where the name is a path, a hub name or a function; a section whose name stands for nothing is missing."""
    names: dict[Section, str] = field(default_factory=dict)
    presets: dict[str, Given] = field(default_factory=dict)
    """Key -> value, of the preset that wins; only keys that can be set."""
    problems: list[str] = field(default_factory=list)

    def defaults(self) -> dict[str, Any]:
        """Key -> default, of all keys that have one."""
        return {key: spec.default for key, spec in self.specs.items() if spec.default is not MISSING}


def name_key(section: Section) -> str:
    """The key that chooses the extension of a section."""
    return "workflow" if section == "workflow" else f"{section}.name"


def choose(given: Mapping[str, Given], plugins: Plugins) -> Choice:
    """Look up what the names stand for: those given, else those of the presets of earlier sections, else the defaults.

    Raises PluginError when a chosen extension cannot be used, or its preset sets what is no key.
    """
    choice = Choice()
    for section in KINDS:
        one = _chosen_by(section, choice, given)
        name = _resolved_name(one, choice, given)
        if name is None:
            continue
        try:
            extension = _look_up(section, name, plugins)
        except UsageError as error:
            choice.problems.append(f"{one}: {error}")
            continue
        choice.extensions[section], choice.names[section] = extension, name
        if extension is not None:
            _take(section, extension, choice)
    _drop_foreign_presets(choice)
    return choice


def _chosen_by(section: Section, choice: Choice, given: Mapping[str, Given]) -> Given:
    key = name_key(section)
    return given.get(key) or choice.presets.get(key) or Given(key, choice.specs[key].default, DEFAULT)


def _resolved_name(one: Given, choice: Choice, given: Mapping[str, Given]) -> str | None:
    """The name as text; None when it is none, which is told later, with the other values."""
    value = one.value
    if is_interpolated(value):
        values = choice.defaults() | {key: other.value for key, other in given.items()}
        written = {key: value for key, value in values.items() if is_interpolated(value)}
        value = interpolate(written, values)[0].get(one.key)
    return value if isinstance(value, str) else None


def _look_up(section: Section, name: str, plugins: Plugins) -> Extension | None:
    """The extension; None when the name is a path, a hub name or a function, which others look for."""
    if _is_elsewhere(section, name):
        return None
    try:
        return plugins.get(KINDS[section], name.partition(":")[0] if section == "model" else name)
    except UsageError as error:
        raise UsageError(f"{error}{_HINTS.get(section, '')}") from error


def _is_elsewhere(section: Section, name: str) -> bool:
    if section == "model":
        return name.startswith((".", "~")) or "/" in name or Path(name).is_dir()
    return (section == "data" and ("/" in name or "." in name)) or (section == "reward" and ":" in name)


def _take(section: Section, extension: Extension, choice: Choice) -> None:
    choice.specs |= extension_keys(section, extension)
    origin = f"the preset of {KINDS[section]} {extension.name}"
    for key, value in extension.preset.items():
        if key in map(name_key, choice.extensions):
            raise PluginError(f"{origin} sets '{key}', which is chosen before it applies")
        home = key.partition(".")[0]
        if key not in choice.specs and (home not in KINDS or home == section):
            raise PluginError(f"{origin} sets '{key}', which is no key.{nearest_key(key, choice.specs)}")
        choice.presets[key] = Given(key, value, origin)


def _drop_foreign_presets(choice: Choice) -> None:
    # a model's preset may know the keys of a trainer, or an engine, that is not in use
    choice.presets = {key: preset for key, preset in choice.presets.items() if key in choice.specs}

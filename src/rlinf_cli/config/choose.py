"""Which extensions the names stand for, and with them which keys and presets there are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from typing import Any

from rlinf_cli.config.errors import nearest_key
from rlinf_cli.config.expression import Term, check_distinct, terms
from rlinf_cli.config.fields import KeySpec, core_keys, extension_keys
from rlinf_cli.config.interpolate import interpolate, is_interpolated
from rlinf_cli.config.kinds import DEFAULT, EXPRESSIONS, KINDS, OPTIONAL, PRESETS, VARIANTS, Section, kinds
from rlinf_cli.config.schema import Part
from rlinf_cli.config.source import Given
from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.registry import Plugins

_HINTS: Mapping[str, str] = {
    "model": ". A directory is written with a '/', a hub name as ORG/NAME",
    "data": ". A file's name ends in .jsonl or .parquet, a hub name is written ORG/NAME",
    "reward": ". A function is written module:function",
}
TASK = "env.task"
"""Where an environment that has several tasks keeps the chosen one."""
_GYMNASIUM_ID = re.compile(r"([\w.-]+/)?[\w.-]+-v\d+")
_EXPRESSION_HINT = ". Several are written NAME + WEIGHT*NAME, with blanks around the '+'"


@dataclass
class Choice:
    """The extensions in use and what follows from them."""

    specs: dict[str, KeySpec] = field(default_factory=core_keys)
    """Every key that can be set."""
    parts: dict[str, tuple[Part, ...]] = field(default_factory=dict)
    """Section, or `eval` -> what its name stands for, without settings; missing where it stands for nothing."""
    names: dict[Section, Any] = field(default_factory=dict)
    """Section -> the text, or list of texts, that names its parts."""
    presets: dict[str, Given] = field(default_factory=dict)
    """Key -> value, of the preset that wins; only keys that can be set."""
    problems: list[str] = field(default_factory=list)

    def defaults(self) -> dict[str, Any]:
        """Key -> default, of all keys that have one."""
        return {key: spec.default for key, spec in self.specs.items() if spec.default is not MISSING}

    def places(self) -> dict[str, Part]:
        """Where parts have keys of their own within a section (`reward.math`) -> the part."""
        return {part.key: part for section in KINDS for part in self.parts.get(section, ()) if part.key != section}


def name_key(section: Section) -> str:
    """The key that chooses the extension of a section."""
    return {"workflow": "workflow", "log": "log.loggers"}.get(section, f"{section}.name")


def choose(given: Mapping[str, Given], plugins: Plugins) -> Choice:
    """Look up what the names stand for: those given, else those of the presets of earlier sections, else the defaults.

    Raises PluginError when a chosen extension cannot be used, or its preset sets what is no key.
    """
    choice = Choice()
    for section in KINDS:
        one = _chosen_by(name_key(section), choice, given)
        name = _resolved(one, choice, given)
        found = _found(one, section, name, choice, plugins) if _is_name(name, section) else None
        if found is None:
            continue
        choice.parts[section], choice.names[section] = found, name
        for part in found:
            _take(section, part, choice)
        if found and section == "env":
            _name_task(one, name, choice, given)
    _choose_evaluation_data(choice, given, plugins)
    choice.presets = dict(_settled_presets(choice))
    return choice


def _chosen_by(key: str, choice: Choice, given: Mapping[str, Given]) -> Given:
    return given.get(key) or choice.presets.get(key) or Given(key, choice.specs[key].default, DEFAULT)


def _found(one: Given, section: Section, name: Any, choice: Choice, plugins: Plugins) -> tuple[Part, ...] | None:
    """What the name stands for; None, with a problem noted, when that is nothing."""
    try:
        return tuple(_parts(section, name, plugins))
    except UsageError as error:
        choice.problems.append(f"{one}: {error}")
        return None


def _resolved(one: Given, choice: Choice, given: Mapping[str, Given]) -> Any:
    """The value without interpolations; None when they cannot be resolved, which is told later."""
    if not is_interpolated(one.value):
        return one.value
    values = choice.defaults() | {key: other.value for key, other in given.items()}
    written = {key: value for key, value in values.items() if is_interpolated(value)}
    return interpolate(written, values)[0].get(one.key)


def _is_name(value: Any, section: Section) -> bool:
    if section == "log":
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return isinstance(value, str)


def _parts(section: Section, value: Any, plugins: Plugins) -> Iterator[Part]:
    if not value and section in OPTIONAL:
        return
    found = _terms(section, value)
    shares = section == "log" or len(found) > 1
    for term in found:
        yield Part(term.name, term.weight, _look_up(section, term.name, plugins),
                   key=f"{section}.{term.name}" if shares else section)


def _terms(section: Section, value: Any) -> list[Term]:
    if section == "log":
        check_distinct(value)
        return [Term(name) for name in value]
    return terms(value) if section in EXPRESSIONS else [Term(value)]


def _look_up(section: Section, name: str, plugins: Plugins) -> Extension | None:
    """The extension; None when the name is a path, a hub name or a function, which others look for."""
    if _is_elsewhere(section, name):
        return None
    try:
        own = _own_name(section, name, plugins)
        return plugins.get(next((kind for kind in kinds(section) if own in plugins.names(kind)), KINDS[section]), own)
    except UsageError as error:
        is_joined = section in EXPRESSIONS and ("+" in name or "*" in name)
        raise UsageError(f"{error}{_EXPRESSION_HINT if is_joined else _HINTS.get(section, '')}") from error


def _own_name(section: Section, name: str, plugins: Plugins) -> str:
    """The name without its variant; of an id of gymnasium's registry that of the plugin that has it."""
    own = name.partition(":")[0] if section in VARIANTS else name
    is_id = section == "env" and own not in plugins.names("environment") and _GYMNASIUM_ID.fullmatch(name)
    return "gymnasium" if is_id else own


def _name_task(one: Given, name: str, choice: Choice, given: Mapping[str, Given]) -> None:
    """What `env.name=NAME:TASK`, or an id of gymnasium's registry, says of the task is a preset of `env.task`."""
    part = choice.parts["env"][0]
    assert part.extension is not None
    own, _, task = name.partition(":")
    task = task if own == part.extension.name else name
    if not task:
        return
    if TASK not in choice.specs:
        choice.problems.append(f"{one}: environment {part.extension.name} has no tasks to choose from: leave out ':{task}'")
    elif TASK in given and given[TASK].value != task:
        choice.problems.append(f"{given[TASK]} contradicts {one}: give one of them")
    choice.presets[TASK] = Given(TASK, task, one.origin)


def _is_elsewhere(section: Section, name: str) -> bool:
    if section == "model":
        return name.startswith((".", "~")) or "/" in name or name.lower().endswith(".gguf") or Path(name).is_dir()
    return (section == "data" and ("/" in name or "." in name)) or (section == "reward" and ":" in name)


def _take(section: Section, part: Part, choice: Choice) -> None:
    extension = part.extension
    if extension is None:
        return
    choice.specs |= extension_keys(section, extension, part.key)
    origin = f"the preset of {KINDS[section]} {extension.name}"
    for written, value in {**PRESETS.get(section, {}), **extension.preset}.items():
        key = _own_key(written, section, part, choice)
        if key in map(name_key, (known for known in KINDS if known in choice.parts)):
            raise PluginError(f"{origin} sets '{key}', which is chosen before it applies")
        home = key.partition(".")[0]
        if key not in choice.specs and (home not in KINDS or home == section):
            raise PluginError(f"{origin} sets '{key}', which is no key.{nearest_key(key, choice.specs)}")
        choice.presets[key] = Given(key, value, origin)


def _own_key(key: str, section: Section, part: Part, choice: Choice) -> str:
    """The key in the place of the part, if it is one of its own there."""
    own = f"{part.key}.{key.removeprefix(f'{section}.')}" if key.startswith(f"{section}.") else key
    return own if own in choice.specs else key


def _choose_evaluation_data(choice: Choice, given: Mapping[str, Given], plugins: Plugins) -> None:
    """What `eval.data` names: its keys are those of the same name in `data.name`, where there is one."""
    one = _chosen_by("eval.data", choice, given)
    name = _resolved(one, choice, given)
    if not name or not _is_name(name, "data"):
        return
    homes = {part.name: part.key for part in choice.parts.get("data", ())}
    found = _found(one, "data", name, choice, plugins) or ()
    choice.parts["eval"] = tuple(replace(part, key=homes.get(part.name, one.key)) for part in found)


def _settled_presets(choice: Choice) -> Iterator[tuple[str, Given]]:
    """The presets that apply. One for an extension that is not in use does not (a model's may know the keys of a
    trainer that is not chosen); one for an extension beside others reaches it when no other has that key."""
    for key, preset in choice.presets.items():
        section, _, name = key.partition(".")
        nested = [f"{part.key}.{name}" for part in choice.parts.get(section, ()) if f"{part.key}.{name}" in choice.specs]
        if key in choice.specs:
            yield key, preset
        elif len(nested) == 1:
            yield nested[0], replace(preset, key=nested[0])

"""What the user gave: CONFIG files, KEY=VALUE arguments and flags, read into single values that know where they stood.

Scalars stay the text that was written; the type of the key decides later how it is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from rlinf_cli.config.errors import ConfigError, raise_if_any
from rlinf_cli.config.kinds import DEFAULT

Source = TypeVar("Source")
COMMAND_LINE = "the command line"
FLAGS: Mapping[str, str] = {
    "algo": "algorithm.name", "env": "env.name", "model": "model.name", "engine": "engine.name", "trainer": "trainer.name",
    "data": "data.name", "reward": "reward.name", "name": "name", "steps": "steps", "seed": "seed",
    "devices": "cluster.devices", "placement": "placement",
}
"""Flag -> the key that it sets."""

_NULLS = {"", "~", "null", "Null", "NULL"}
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map", "null", "bool", "int", "float")}


@dataclass(frozen=True)
class Given:
    """A value that somebody gave: text, None, a list of those, or a mapping inside a list."""

    key: str
    value: Any
    origin: str
    """`the command line`, `FILE:LINE`, `--flag`, `the preset of ...`, `the default`."""

    def __str__(self) -> str:
        source = self.origin if self.origin == DEFAULT else f"from {self.origin}"
        return f"{self.key}={display(self.value)} ({source})"


def display(value: Any) -> str:
    """The value as a user would write it."""
    if isinstance(value, (list, tuple)):
        elements = (display(element) or '""' for element in value)
        return f"[{', '.join(elements)}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def read_all(files: Sequence[Path], overrides: Sequence[str],
             flags: Mapping[str, str | int | None]) -> tuple[list[Given], list[str]]:
    """Everything given, in order of precedence, a later one wins; and what is wrong with arguments and flags.

    Raises ConfigError when a file cannot be read: nothing can be said of the rest then.
    """
    given: list[Given] = []
    problems: list[str] = []
    for path in files:
        given += _collecting(problems, read_file, path)
    raise_if_any(problems)
    for text in overrides:
        given += _collecting(problems, read_override, text)
    from_flags = [Given(FLAGS[flag], str(value), f"--{flag}") for flag, value in flags.items() if value is not None]
    problems += _contradictions(from_flags, given)
    return given + from_flags, problems


def _collecting(problems: list[str], read: Callable[[Source], list[Given]], source: Source) -> list[Given]:
    try:
        return read(source)
    except ConfigError as error:
        problems += error.problems
        return []


def _contradictions(flags: Sequence[Given], given: Sequence[Given]) -> Iterator[str]:
    arguments = {one.key: one for one in given if one.origin == COMMAND_LINE}
    for flag in flags:
        argument = arguments.get(flag.key)
        if argument and argument.value != flag.value:
            yield (f"{flag.origin} {flag.value} contradicts {argument.key}={display(argument.value)} "
                   f"on the command line: give one of them")


def read_override(text: str) -> list[Given]:
    """The values of one KEY=VALUE argument (several, when the value is a mapping)."""
    name, equals, value = text.partition("=")
    if text.startswith(("+", "~")):
        raise ConfigError([_about_hydra(text)])
    if not equals:
        raise ConfigError([f"'{text}' is neither a file nor KEY=VALUE: write KEY=VALUE, as in steps=100"])
    if not name.strip():
        raise ConfigError([f"'{text}' has no key before the '=': write KEY=VALUE, as in steps=100"])
    return list(_flatten(name.strip(), _argument_value(text, value.strip()), COMMAND_LINE))


def _about_hydra(text: str) -> str:
    if text.startswith("~"):
        return f"'{text}': hydra's '~' does not exist here, a key cannot be removed: leave it out, or set it"
    plain = text.lstrip("+")
    return f"'{text}': hydra's '+' does not exist here, every known key can be set without it: write {plain}"


def _argument_value(argument: str, text: str) -> Any:
    """Quotes, lists and mappings are read as YAML; any other text, with all its signs, is the value."""
    if not text.startswith(("'", '"', "[", "{")):
        return None if text and text in _NULLS else text
    try:
        return _plain(yaml.compose(text, Loader=yaml.BaseLoader), COMMAND_LINE)
    except yaml.YAMLError as error:
        reason = getattr(error, "problem", None) or error
        raise ConfigError([f"{argument} (from {COMMAND_LINE}): the value is not valid YAML ({reason}): close what is "
                           f"open, or put the whole value in quotes"]) from error


def read_file(path: Path) -> list[Given]:
    """The values of a CONFIG file.

    Raises ConfigError when it is not a YAML mapping, or names a key twice.
    """
    try:
        root = yaml.compose(_text_of(path), Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        reason = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError([f"{where}: not valid YAML: {reason}"]) from error
    except yaml.YAMLError as error:
        raise ConfigError([f"{path}: not valid YAML: {str(error).splitlines()[0]}"]) from error
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError([f"{path}: a mapping is needed, keys with values as in 'steps: 100'; this is a "
                           f"{'list' if isinstance(root, yaml.SequenceNode) else 'single value'}"])
    given = list(_leaves("", root, path))
    raise_if_any(list(_repeated(given)))
    return given


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError([f"no such file: {path}.{_nearest_file(path)}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 text, so no YAML file"]) from error
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error


def _nearest_file(path: Path) -> str:
    """A hint at a YAML file with a name like this one, beside it or in configs/."""
    files = [file for folder in (Path("configs"), path.parent) for file in sorted(folder.glob("*.y*ml"))]
    stems = {file.stem: file for file in files}
    near = difflib.get_close_matches(path.stem, stems, n=1)
    return f" Did you mean '{stems[near[0]]}'?" if near else ""


def _leaves(prefix: str, node: yaml.MappingNode, path: Path) -> Iterator[Given]:
    """The values under a mapping; a key may be dotted, a section without anything in it gives nothing."""
    sections: dict[str, str] = {}
    for key_node, value_node in node.value:
        place = f"{path}:{key_node.start_mark.line + 1}"
        name = prefix + _key_text(key_node, place)
        if not isinstance(value_node, yaml.MappingNode):
            yield Given(name, _plain(value_node, place), place)
            continue
        _check_tag(value_node, place)
        if name in sections:
            raise ConfigError([_twice(name, place, sections[name])])
        sections[name] = place
        yield from _leaves(f"{name}.", value_node, path)


def _repeated(given: Sequence[Given]) -> Iterator[str]:
    first: dict[str, str] = {}
    for one in given:
        if one.key in first:
            yield _twice(one.key, one.origin, first[one.key])
        first.setdefault(one.key, one.origin)


def _twice(name: str, place: str, first: str) -> str:
    return f"{place}: '{name}' is there twice, first at {first}: keep one of them"


def _plain(node: yaml.Node, place: str) -> Any:
    """A node as text, None, list or mapping."""
    _check_tag(node, place)
    if isinstance(node, yaml.MappingNode):
        return {_key_text(name, place): _plain(value, place) for name, value in node.value}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(element, place) for element in node.value]
    return None if node.style is None and node.value in _NULLS else node.value


def _key_text(node: yaml.Node, place: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError([f"{place}: a key must be a text"])
    return str(node.value)


def _check_tag(node: yaml.Node, place: str) -> None:
    if node.tag not in _TAGS:
        raise ConfigError([f"{place}: the tag {node.tag} is not allowed: give a plain value"])


def _flatten(name: str, value: Any, origin: str) -> Iterator[Given]:
    if not isinstance(value, dict):
        yield Given(name, value, origin)
        return
    for part, inner in value.items():
        yield from _flatten(f"{name}.{part}", inner, origin)

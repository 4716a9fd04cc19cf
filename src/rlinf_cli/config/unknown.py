"""What to say of a key that does not exist: the nearest one, or whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rlinf_cli.config.choose import Choice, name_key
from rlinf_cli.config.errors import nearest_key
from rlinf_cli.config.fields import usable_keys
from rlinf_cli.config.kinds import EXPRESSIONS, KINDS, Section, kinds
from rlinf_cli.config.schema import SECTIONS
from rlinf_cli.config.source import Given, display
from rlinf_cli.plugins.registry import Plugins


@dataclass(frozen=True)
class Owner:
    """An extension that has the key, chosen or not."""

    section: Section
    name: str
    field: str

    @property
    def kind(self) -> str:
        return f"{KINDS[self.section]} {self.name}"


def unknown_keys(given: Mapping[str, Given], choice: Choice, plugins: Plugins) -> Iterator[str]:
    """A sentence for each given key that does not exist.

    The keys of a section whose name stands for nothing are not judged: that is told, and decides which keys there are.
    """
    for key, one in given.items():
        section = key.partition(".")[0]
        is_undecided = section in KINDS and section not in choice.parts and key not in SECTIONS
        if key not in choice.specs and not is_undecided:
            yield _about(one, choice, plugins)


def _about(one: Given, choice: Choice, plugins: Plugins) -> str:
    section, dot, _ = one.key.partition(".")
    if one.key in SECTIONS:
        return _about_mapping(one, "is a section with keys of its own", choice)
    if one.key in choice.places():
        return _about_mapping(one, "has keys of its own", choice)
    owners = list(_owners(one.key, plugins))
    if owners:
        return _about_owners(one, owners, choice)
    start = f"unknown key '{one.key}' (from {one.origin})"
    parent = one.key.rpartition(".")[0]
    if dot and parent in choice.specs:
        return f"{start}: '{parent}' is a single value, there is nothing below it"
    topic = f" {section}" if section in SECTIONS else ""
    return f"{start}.{nearest_key(one.key, choice.specs)} See: rlinf config keys{topic}"


def _about_mapping(one: Given, what: str, choice: Choice) -> str:
    keys = [key for key in choice.specs if key.startswith(f"{one.key}.")]
    advice = f"write {keys[0]}={display(one.value)}" if keys else "leave it out"
    return f"{one}: '{one.key}' {what if keys else 'has no keys'}: {advice}"


def _owners(key: str, plugins: Plugins) -> Iterator[Owner]:
    """The extensions that have the key, written as for one extension alone or as for one of several."""
    for section, kind in ((one, kind) for one in KINDS for kind in kinds(one)):
        for name, extension in plugins.extensions(kind).items() if key.startswith(f"{section}.") else ():
            alone = usable_keys(section, extension)
            among = usable_keys(section, extension, f"{section}.{name}") if section in EXPRESSIONS else {}
            if key in alone or key in among:
                yield Owner(section, name, key.rpartition(".")[2])


def _about_owners(one: Given, owners: list[Owner], choice: Choice) -> str:
    section = owners[0].section
    places = {part.extension.name: part.key for part in choice.parts[section] if part.extension}
    written = [f"{places[owner.name]}.{owner.field}" for owner in owners if owner.name in places]
    if written:
        return f"'{one.key}' (from {one.origin}): with {_named(section, choice)} it is written {' or '.join(written)}"
    names = " and ".join(owner.name for owner in owners)
    return (f"'{one.key}' (from {one.origin}) belongs to {KINDS[section]} {names}, but {_named(section, choice, ' is ')}: "
            f"{_choosing(one, owners[0], choice)}, or leave the key out")


def _named(section: Section, choice: Choice, is_: str = "=") -> str:
    value = choice.names[section]
    quote = "'" if is_.strip() == "is" and isinstance(value, str) else ""
    return f"{name_key(section)}{is_}{quote}{display(value)}{quote}"


def _choosing(one: Given, owner: Owner, choice: Choice) -> str:
    """How to make the key's owner one of what the section names."""
    key, value = name_key(owner.section), choice.names[owner.section]
    if owner.section == "log":
        return f"set {key}={display([*value, owner.name])}"
    beside = f"'{value} + {owner.name}'" if one.key.count(".") > 1 else owner.name
    return f"set {key}={beside}"

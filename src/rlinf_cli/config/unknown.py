"""What to say of a key that does not exist: the nearest one, or whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlinf_cli.config.choose import Choice
from rlinf_cli.config.errors import nearest_key
from rlinf_cli.config.fields import usable_keys
from rlinf_cli.config.schema import KINDS, SECTIONS
from rlinf_cli.config.source import Given, display
from rlinf_cli.plugins.registry import Plugins


def unknown_keys(given: Mapping[str, Given], choice: Choice, plugins: Plugins) -> Iterator[str]:
    """A sentence for each given key that does not exist.

    The keys of a section whose extension was not found are not judged: that is told, and decides which keys there are.
    """
    for key, one in given.items():
        section = key.partition(".")[0]
        is_undecided = section in KINDS and section not in choice.extensions and key not in SECTIONS
        if key not in choice.specs and not is_undecided:
            yield _about(one, choice, plugins)


def _about(one: Given, choice: Choice, plugins: Plugins) -> str:
    section, dot, _ = one.key.partition(".")
    if one.key in SECTIONS:
        return _about_section(one, choice)
    owners = _owners(one.key, plugins)
    if owners:
        return _about_owners(one, owners, choice)
    start = f"unknown key '{one.key}' (from {one.origin})"
    if section in choice.specs and dot:
        return f"{start}: '{section}' is a single value, there is nothing below it"
    topic = f" {section}" if section in SECTIONS else ""
    return f"{start}.{nearest_key(one.key, choice.specs)} See: rlinf config keys{topic}"


def _about_section(one: Given, choice: Choice) -> str:
    keys = [key for key in choice.specs if key.startswith(f"{one.key}.")]
    return f"{one}: '{one.key}' is a section with keys of its own: write {keys[0]}={display(one.value)}"


def _owners(key: str, plugins: Plugins) -> list[str]:
    """Names of the extensions, chosen or not, that have this key."""
    return [name for section, kind in KINDS.items() if key.startswith(f"{section}.")
            for name, extension in plugins.extensions(kind).items() if key in usable_keys(section, extension)]


def _about_owners(one: Given, owners: list[str], choice: Choice) -> str:
    section = one.key.partition(".")[0]
    chosen = next(name for known, name in choice.names.items() if known == section)
    return (f"'{one.key}' (from {one.origin}) belongs to {section} {' and '.join(owners)}, but {section}.name is "
            f"'{chosen}': set {section}.name={owners[0]}, or leave the key out")

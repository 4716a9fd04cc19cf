"""Finds the entry points of the group `rlinf` without importing anything that they name."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rlinf_cli.plugins.extension import describe
from rlinf_cli.plugins.hookspecs import GROUP

BUILTIN = "rlinf-cli"
"""The distribution whose plugins are not third-party."""

_SECTION = re.compile(rf"^\s*\[\s*{GROUP}\s*\]\s*$", re.MULTILINE)


@dataclass(frozen=True)
class EntryPoint:
    """One entry point of the group, or (`problem` filled) a distribution whose entry points cannot be read."""

    name: str
    distribution: str
    version: str
    module: str
    problem: str = ""

    @property
    def third_party(self) -> bool:
        """Whether it comes from another distribution than rlinf-cli."""
        return normalized(self.distribution) != BUILTIN

    def __str__(self) -> str:
        return f"'{self.name}' of {self.distribution} {self.version} ({self.module})"


def normalized(distribution: str) -> str:
    """The distribution name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def is_installed(distribution: str) -> bool:
    """Whether the distribution is installed, told from its metadata: nothing is imported."""
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def discover() -> list[EntryPoint]:
    """Every entry point of the group, sorted by name, rlinf-cli's own first.

    `importlib.metadata.entry_points` would stop at the first malformed file of any distribution; here each
    distribution is read on its own.
    """
    found: list[EntryPoint] = []
    names: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        try:
            if _declares_plugins(distribution):
                name = distribution.metadata["Name"]
                names.setdefault(normalized(name), name)
        except Exception as error:  # noqa: PERF203 - metadata is written by anybody: cut short, undecodable, ...
            found.append(_unreadable(str(distribution.locate_file("")), error))
    found += [entry for name in names.values() for entry in _entry_points(name)]
    return sorted(found, key=lambda entry: (entry.third_party, entry.name, entry.distribution))


def repeated(entries: Iterable[EntryPoint]) -> dict[str, list[EntryPoint]]:
    """The names that more than one entry point has, with those entry points."""
    by_name: dict[str, list[EntryPoint]] = {}
    for entry in entries:
        by_name.setdefault(entry.name, []).append(entry)
    return {name: group for name, group in by_name.items() if len(group) > 1}


def _declares_plugins(distribution: importlib.metadata.Distribution) -> bool:
    return bool(_SECTION.search(distribution.read_text("entry_points.txt") or ""))


def _entry_points(name: str) -> Iterator[EntryPoint]:
    # by name, because a second copy of a distribution further down sys.path is not the one that gets imported
    distribution = importlib.metadata.distribution(name)
    try:
        points = distribution.entry_points.select(group=GROUP)
    except Exception as error:  # a line without '=' raises TypeError, others ValueError
        yield EntryPoint(name, name, distribution.version, "", f"its entry_points.txt is malformed: {describe(error)}")
        return
    for point in points:
        yield EntryPoint(point.name, name, distribution.version, point.value)


def _unreadable(folder: str, error: Exception) -> EntryPoint:
    problem = f"the metadata of a distribution in {folder} cannot be read: {describe(error)}"
    return EntryPoint("(unreadable)", "(unknown)", "", "", problem)

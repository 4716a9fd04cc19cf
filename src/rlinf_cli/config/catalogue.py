"""Every key there is, with its meaning: for `rlinf config keys`, the documentation, and the JSON Schema."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, dataclass, replace

from rlinf_cli.config.convert import type_name
from rlinf_cli.config.errors import nearest_key
from rlinf_cli.config.fields import KeySpec, core_keys, usable_keys
from rlinf_cli.config.kinds import EXPRESSIONS, KINDS, kinds
from rlinf_cli.config.schema import SECTIONS
from rlinf_cli.config.source import display
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.registry import Plugins


@dataclass(frozen=True)
class Entry:
    """A key as it is shown to users."""

    spec: KeySpec
    owner: str
    """`core`, or the extension and the distribution that it comes from: `algorithm grpo (rlinf-cli)`."""

    @property
    def key(self) -> str:
        return self.spec.key

    @property
    def place(self) -> str:
        """What the key stands below: `reward`, `log.wandb`; empty for a key of the top level."""
        return self.key.rpartition(".")[0]

    @property
    def section(self) -> str:
        """Empty for a key of the top level."""
        return self.place.partition(".")[0]

    @property
    def among_several(self) -> Entry:
        """The same key of an extension that is one of several: `reward.format.pattern`."""
        return replace(self, spec=replace(self.spec, key=f"{self.section}.{self.spec.extension}.{self.spec.field}"))

    @property
    def type(self) -> str:
        """`int`, `list[str]`, `float | None`."""
        return type_name(self.spec.annotation)

    @property
    def default(self) -> str:
        """As a user would write it; empty when the key must be set."""
        return "" if self.spec.default is MISSING else display(self.spec.default) or '""'

    @property
    def meaning(self) -> str:
        """The docstring under the field."""
        return meanings(self.spec.home).get(self.spec.field, "")

    @property
    def meaning_with_limits(self) -> str:
        """Both in one text, the limits in parentheses."""
        return " ".join(filter(None, [self.meaning, f"({self.limits})" if self.limits else ""]))

    @property
    def limits(self) -> str:
        """What the value must be, in words; empty when the type says it all."""
        return str(self.spec.rule)


def catalogue(plugins: Plugins) -> list[Entry]:
    """Every key of the core and of all installed extensions, section by section."""
    found = [Entry(spec, spec.owner) for spec in core_keys().values()]
    found += _extension_entries(plugins)
    places = {section: place for place, section in enumerate(["", *SECTIONS])}
    return sorted(found, key=lambda entry: places[entry.section])


def _extension_entries(plugins: Plugins) -> Iterator[Entry]:
    """Extensions that share a configuration dataclass, as variants of one do, share the entries of its keys."""
    homes = {offer.key: info.distribution for info in plugins.plugins for offer in info.provides}
    for section, kind in ((one, kind) for one in KINDS for kind in kinds(one)):
        found: dict[tuple[str, type, str], tuple[KeySpec, list[str]]] = {}
        for name, extension in plugins.extensions(kind).items():
            for spec in usable_keys(section, extension).values():
                found.setdefault((spec.key, spec.home, homes[kind, name]), (spec, []))[1].append(name)
        for (_, _, distribution), (spec, names) in found.items():
            yield Entry(spec, f"{kind} {', '.join(names)} ({distribution})")


@functools.cache
def meanings(home: type) -> dict[str, str]:
    """Field -> the docstring under it, of a dataclass and those that it inherits from."""
    found: dict[str, str] = {}
    for cls in reversed(home.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
        assert isinstance(body, ast.ClassDef)
        found |= dict(_documented(body.body))
    return found


def _documented(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    for statement, after in itertools.pairwise(body):
        if (isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
                and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)):
            yield statement.target.id, " ".join(str(after.value.value).split())


def matching(prefix: str, entries: Sequence[Entry]) -> list[Entry]:
    """The entries whose key is the prefix, stands below it or starts with it, also as they are written among several.

    Raises UsageError with the nearest key when there are none.
    """
    nested = [entry.among_several for entry in entries if entry.spec.extension and entry.section in EXPRESSIONS]
    found = _starting_with(prefix, entries) or _starting_with(prefix, nested)
    if not found:
        near = nearest_key(prefix, [*SECTIONS, *(entry.key for entry in [*entries, *nested])])
        raise UsageError(f"no key starts with '{prefix}'.{near} See: rlinf config keys")
    return found


def _starting_with(prefix: str, entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.key.startswith(prefix)]


def markdown_tables(entries: Sequence[Entry]) -> str:
    """A table a section, with a heading each."""
    parts = []
    for section, group in itertools.groupby(entries, key=lambda entry: entry.section):
        heading = f"### {section}\n\n{SECTIONS[section].__doc__}" if section else "### Top level"
        header = "| key | type | default | meaning | owner |\n|---|---|---|---|---|"
        parts.append("\n".join([f"{heading}\n", header, *map(_row, group)]))
    return "\n\n".join(parts) + "\n"


def _row(entry: Entry) -> str:
    default = f"`{entry.default}`" if entry.default else "must be set"
    cells = [f"`{entry.key}`", f"`{entry.type}`", default, entry.meaning_with_limits, entry.owner]
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"

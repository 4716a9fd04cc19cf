"""What a model name means: a directory, a GGUF file, a named source of a plugin, or a name on the Hugging Face hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf_cli.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from rlinf_cli.plugins.registry import Plugins

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_SOURCE_NAME = re.compile(r"[\w-]+(:[\w.-]*)?")


@dataclass(frozen=True)
class Directory:
    """A directory that exists."""

    path: Path


@dataclass(frozen=True)
class GGUF:
    """A file NAME.gguf that exists."""

    path: Path


@dataclass(frozen=True)
class Named:
    """NAME or NAME:VARIANT of a plugin."""

    name: str
    variant: str


@dataclass(frozen=True)
class Hub:
    """ORGANISATION/NAME on the hub."""

    repository: str


def interpret(name: str, plugins: Plugins) -> Directory | GGUF | Named | Hub:
    """Raises UsageError, with the nearest name, for what is none of them."""
    path = Path(name).expanduser()
    if path.is_dir():
        return Directory(path.resolve())
    if path.suffix.lower() == ".gguf":
        return GGUF(_existing(path))
    source, _, variant = name.partition(":")
    if _SOURCE_NAME.fullmatch(name) and source in plugins.names("model"):
        return Named(source, variant)
    if source in plugins.names("policy"):
        raise UsageError(f"model '{name}' is a policy of environments: choose one with --env NAME, or another model")
    if path.is_file():
        raise UsageError(f"model '{name}' is a file: give the Hugging Face directory that holds config.json, or a GGUF "
                         "file (NAME.gguf)")
    near = _near(path)
    if _HUB_NAME.fullmatch(name) and not near:
        return Hub(name)
    raise UsageError(f"model '{name}' is no directory, no named model ({', '.join(plugins.names('model'))}) and no hub "
                     f"name (ORGANISATION/NAME){near or did_you_mean(source, plugins.names('model'))}")


def _existing(file: Path) -> Path:
    if not file.is_file():
        raise UsageError(f"model file '{file}' does not exist{_near(file, '.gguf')}")
    return file.resolve()


def _near(path: Path, suffix: str = "") -> str:
    """` did you mean` with a directory, or a file of that suffix, beside the one that is missing, its path as the user
    writes it."""
    if not path.parent.is_dir():
        return ""
    known = (entry.name for entry in path.parent.iterdir()
             if (entry.suffix.lower() == suffix if suffix else entry.is_dir()))
    found = did_you_mean(path.name, known)
    return found.replace("'", f"'{path.parent}/", 1) if found and str(path.parent) != "." else found

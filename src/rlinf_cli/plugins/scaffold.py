"""Writes a package that adds one extension: one that works, with tests, for its author to change.

The files lie in `template/`, a directory a kind beside what all kinds have; `${...}` in their text and names is filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from rlinf_cli import __version__
from rlinf_cli.errors import UsageError
from rlinf_cli.plugins.discovery import discover
from rlinf_cli.plugins.hookspecs import KINDS
from rlinf_cli.plugins.registry import Plugins

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*")
_TEMPLATES = Path(__file__).parent / "template"
_SUFFIX = ".txt"
"""Of every template file, so that no tool takes one for what it will become."""

STARTS = {
    "algorithm": ("REINFORCE with the mean reward of a step as the baseline", "rlinf train --algo ${name}"),
    "engine": ("a plain decoding loop over a model of transformers", "rlinf train --algo grpo --engine ${name}"),
    "trainer": ("AdamW on all weights, one sample at a time", "rlinf train --algo grpo --trainer ${name}"),
    "reward": ("1 for the right answer, less for a long one", "rlinf train --algo grpo --reward ${name}"),
    "workflow": ("the reasoning loop, with new weights for the engines every other step",
                 "rlinf train --algo grpo workflow=${name}"),
    "model": ("a small Llama with random weights, a token a character", "rlinf train --algo grpo --model ${name}"),
    "dataset": ("find the largest of some digits", "rlinf train --algo grpo --data ${name}"),
    "logger": ("every metric of every step in a CSV file", "rlinf train --algo grpo 'log.loggers=[${name}]'"),
    "policy": ("actions that are linear in what is observed, with a fixed spread",
               "rlinf train --env Pendulum-v1 --model ${name}"),
    "environment": ("push a point to the middle of a line", "rlinf train --env ${name}"),
    "agent": ("a dialogue in which the policy calls a tool with the last line of its turn",
              "rlinf train --algo grpo agent.name=${name} tools.name=calculator rollout.max_prompt_tokens=512 "
              "agent.max_tokens=2048"),
    "tool": ("lengths, weights and times in other units",
             "rlinf train --algo grpo agent.name=tags tools.name=${name} agent.max_tokens=2048"),
}
"""Kind -> what the package does as it is written, and the command that uses it."""


@dataclass(frozen=True)
class Names:
    """What the parts of a package are called."""

    name: str
    """Of the plugin and of its extension."""

    @property
    def distribution(self) -> str:
        return f"rlinf-{self.name.lower()}"

    @property
    def module(self) -> str:
        return self.distribution.replace("-", "_")

    @property
    def class_name(self) -> str:
        return "".join(part[:1].upper() + part[1:] for part in self.name.split("-"))


def scaffold(name: str, kind: str, directory: Path, plugins: Plugins) -> Path:
    """Write the package `rlinf-NAME` into a new directory of that name, which is returned, below `directory`.

    Raises UsageError for a name that is malformed or taken, and when the directory is there already.
    """
    names = Names(name)
    _check_name(names, kind, plugins)
    root = directory / names.distribution
    start, usage = STARTS[kind]
    values = {"name": name, "distribution": names.distribution, "module": names.module, "Class": names.class_name,
              "kind": kind, "start": start, "version": __version__, "usage": Template(usage).substitute(name=name)}
    rendered = {Template(path).substitute(values): Template(text).substitute(values) for path, text in _templates(kind)}
    try:
        root.mkdir(parents=True)
    except FileExistsError as error:
        raise UsageError(f"{root} exists already: nothing is overwritten, choose another NAME or --directory") from error
    except OSError as error:
        raise UsageError(f"{root} cannot be made: {error.strerror}") from error
    for path, text in rendered.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    return root


def _check_name(names: Names, kind: str, plugins: Plugins) -> None:
    if not _NAME.fullmatch(names.name):
        raise UsageError(f"'{names.name}' cannot be the name of a plugin: letters, digits and single '-' between them, a letter "
                         "first")
    taken = {entry.name: entry for entry in discover()}
    if names.name in taken:
        raise UsageError(f"there is a plugin {taken[names.name]} already: two of one name are both refused, choose another")
    if names.name in plugins.names(kind):
        raise UsageError(f"there is a {kind} '{names.name}' already: two of one name are both refused, choose another")


def _templates(kind: str) -> Iterator[tuple[str, str]]:
    """Path and text of each file, with what is to be filled in."""
    assert kind in KINDS
    for folder in (_TEMPLATES / "common", _TEMPLATES / kind):
        for file in sorted(folder.rglob(f"*{_SUFFIX}")):
            yield file.relative_to(folder).as_posix().removesuffix(_SUFFIX), file.read_text(encoding="utf-8")

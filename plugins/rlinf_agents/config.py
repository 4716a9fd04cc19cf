"""Configuration keys of the built-in agents and tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rlinf_cli.api import key

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class TagsConfig:
    """Keys of the agent `tags`."""

    result_tag: str = key("information", pattern=_NAME, form="a name")
    """What a tool answers is shown between <tag> and </tag>."""
    answer_tag: str = key("answer", pattern=rf"({_NAME})?", form="a name, or empty")
    """An episode ends with </tag>; empty: with the model's own end alone."""
    invalid: str = ""
    """What is shown after a turn that neither calls a tool nor answers, and the episode goes on; empty: it ends there."""


@dataclass(frozen=True)
class FunctionsConfig:
    """Keys of the agent `functions`."""

    parallel: int = key(8, ge=1)
    """Calls of one turn that are carried out, side by side; the others are told to be too many."""


@dataclass(frozen=True)
class CalculatorConfig:
    """Keys of the tool `calculator`."""

    digits: int = key(12, ge=1, le=50)
    """Significant digits of a result that is no whole number."""


@dataclass(frozen=True)
class PythonConfig:
    """Keys of the tool `python`."""

    run_s: float = key(10.0, gt=0)
    """Seconds that a program may take."""
    memory_mb: int = key(1024, ge=64)
    """Memory that a program may use, in MB."""
    characters: int = key(8192, ge=1)
    """Of what a program prints, the first so many are shown."""

    def problems_with(self, config: Any) -> Iterator[str]:
        if self.run_s >= config.tools.timeout_s:
            yield (f"tools.run_s={self.run_s:g} reaches the limit of any call, tools.timeout_s={config.tools.timeout_s:g}: give "
                   "one that is higher")

"""Which sections a user fills by a name, and what the name can stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Section = Literal["env", "data", "agent", "tools", "algorithm", "workflow", "engine", "trainer", "model", "reward", "log"]

KINDS: Mapping[Section, str] = {
    "env": "environment", "data": "dataset", "agent": "agent", "tools": "tool", "algorithm": "algorithm", "workflow": "workflow",
    "engine": "engine", "trainer": "trainer", "model": "model", "reward": "reward", "log": "logger",
}
"""What a user chooses by name -> the kind of extension that it is, in the order in which presets apply."""

VARIANTS: frozenset[Section] = frozenset({"env", "model"})
"""Sections whose name may have a variant behind a colon."""

OPTIONAL: frozenset[Section] = frozenset({"env", "agent", "tools"})
"""Sections whose name may be empty: nothing is chosen then."""

PRESETS: Mapping[Section, Mapping[str, Any]] = {
    "env": {"workflow": "embodied", "algorithm.name": "ppo", "model.name": "mlp", "algorithm.epochs": 4,
            "algorithm.minibatches": 4, "algorithm.gamma": 0.99, "trainer.lr": 3e-4, "cluster.fused": True},
    "agent": {"workflow": "agentic"},
}
"""Defaults that change as soon as something is chosen for a section, whatever it is; the extension's own come before."""

ALSO: Mapping[Section, tuple[str, ...]] = {"model": ("policy",)}
"""Further kinds of extension that a section may name."""

EXPRESSIONS: frozenset[Section] = frozenset({"data", "reward", "tools"})
"""Sections whose name may be several, of data and rewards with weights: `math + 0.2*format`."""

DEFAULT = "the default"
"""Origin of a value that nobody gave."""


def kinds(section: Section) -> tuple[str, ...]:
    """Kinds of extension that a section may name, the usual one first."""
    return KINDS[section], *ALSO.get(section, ())

"""Which tasks ManiSkill has, read from its files: importing it takes seconds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

DEFAULT_STEPS = 50


@cache
def tasks() -> dict[str, int]:
    """Name of a task -> most steps of an episode, of the package that is installed."""
    spec = importlib.util.find_spec("mani_skill")
    assert spec is not None, "the extension requires mani-skill"
    assert spec.origin is not None
    files = sorted((Path(spec.origin).parent / "envs").rglob("*.py"))
    return {name: steps for file in files for name, steps in _registered(file.read_text(encoding="utf-8"))}


def _registered(source: str) -> Iterator[tuple[str, int]]:
    """Of each `@register_env("NAME", max_episode_steps=...)`."""
    if "register_env(" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "register_env" and node.args:
            given = {word.arg: _literal(word.value) for word in node.keywords}
            yield str(_literal(node.args[0])), given.get("max_episode_steps") or DEFAULT_STEPS


def _literal(node: ast.expr) -> Any:
    """Its value; None where it is not written out."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None

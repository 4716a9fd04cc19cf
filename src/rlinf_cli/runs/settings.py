"""The settings of a run as its `config.yaml` has them; needs none of the plugins that the run did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlinf_cli.errors import UsageError
from rlinf_cli.runs.files import reason


def read_settings(path: Path) -> dict[str, Any]:
    """Key (`rollout.prompts`) -> value. Raises UsageError when the file cannot be read."""
    try:
        return parse_settings(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}") from error


def parse_settings(text: str) -> dict[str, Any]:
    """`read_settings` of a text; ValueError when it is no configuration."""
    import yaml

    try:
        document = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError("not YAML") from error
    if not isinstance(document, dict):
        raise ValueError("it holds no keys")
    return dict(_flat(document))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Key -> both values, of the keys whose values differ; None stands for a key that is not there."""
    return {key: (before.get(key), after.get(key)) for key in {**before, **after} if before.get(key) != after.get(key)}


def shown(value: Any) -> str:
    """A value in a few words."""
    return "–" if value in (None, "") else str(value).lower() if isinstance(value, bool) else str(value)


def _flat(document: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{section}{name}.")
        else:
            yield f"{section}{name}", value

"""A configuration as YAML that resolves to the same configuration again."""

from __future__ import annotations

import math
from typing import Any

import yaml

from rlinf_cli.config.interpolate import escaped
from rlinf_cli.config.schema import RunConfig


def to_yaml(config: RunConfig, origins: bool = False) -> str:
    """One line a key; with `origins` each ends in a comment that says where the value came from."""
    lines, current = [], ""
    for place, name, value in config.items():
        indent = "  " * (place.count(".") + 1 if place else 0)
        if place != current:
            lines.append(f"{indent[2:]}{inline(place.partition('.')[2] or place)}:")
            current = place
        line = f"{indent}{name}: {inline(value)}"
        comment = f"  # {config.origin(f'{place}.{name}' if place else name)}"
        lines.append(line + comment if origins else line)
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """The value in one line of YAML that reads back as it is."""
    texts = value if isinstance(value, (list, tuple)) else [value]
    style = None if all(str(text).isprintable() for text in texts) else '"'
    written = yaml.safe_dump(escaped(value), default_style=style, default_flow_style=True, width=math.inf,
                             allow_unicode=True)
    return str(written).removesuffix("...\n").rstrip("\n")

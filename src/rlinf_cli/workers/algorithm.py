"""The chosen algorithm, and what a workflow needs to know of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.algorithm import Algorithm


def build_algorithm(config: RunConfig) -> Algorithm:
    extension = config.extension("algorithm")
    assert extension is not None
    algorithm: Algorithm = extension.load()(config.settings("algorithm"))
    return algorithm


def trait(config: RunConfig, name: str) -> Any:
    """What the algorithm says of itself: `needs_reference`, `rounds`, ...

    Its configuration is asked first, as it may have a property of that name: building most algorithms imports torch,
    which the driver can do without.
    """
    settings = config.settings("algorithm")
    return getattr(settings, name) if hasattr(settings, name) else getattr(build_algorithm(config), name)


_STATE = "algorithm.json"


def save_state(algorithm: Algorithm, directory: Path) -> None:
    """Write `Algorithm.state` into a directory, where there is any."""
    if algorithm.state:
        (directory / _STATE).write_text(json.dumps(dict(algorithm.state)) + "\n")


def load_state(algorithm: Algorithm, directory: Path) -> None:
    """Take up what `save_state` wrote; without it, begin anew."""
    if (directory / _STATE).exists():
        algorithm.state = json.loads((directory / _STATE).read_text())

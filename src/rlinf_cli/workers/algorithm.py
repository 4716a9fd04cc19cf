"""The chosen algorithm, and what a workflow needs to know of it."""

from __future__ import annotations

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

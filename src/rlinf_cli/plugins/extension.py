"""What a plugin offers: frozen descriptions, cheap to make, whose targets are imported only where they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True)
class Extension:
    """One thing that a plugin offers, returned in a list from a `register_*` hook.

    Example::

        @hookimpl
        def register_rewards():
            return [Extension("politeness", target="my_pkg.reward:Politeness", config="my_pkg.config:Politeness",
                              summary="counts please and thank you", requires=("textblob",))]
    """

    name: str
    """What the user writes: `--algo NAME`, `reward.name=NAME`. Letters, digits, `-`, `_`."""
    target: str
    """`module:attribute` of the implementation; imported in the process that uses it."""
    config: str = ""
    """`module:Dataclass` of its configuration keys; the module must not import torch, ray or transformers."""
    summary: str = ""
    """One line for `rlinf plugins`."""
    requires: tuple[str, ...] = ()
    """Distributions that must be installed (`pip` names); when one is missing the user is told how to install it."""
    extra: str = ""
    """The extra of the providing distribution that brings `requires`, for the install hint."""
    preset: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Dotted configuration keys and the defaults they take when this extension is chosen."""

    def load(self) -> Any:
        """Import and return the target."""
        return _resolve(self.target)

    def load_config(self) -> type | None:
        """Import and return the configuration dataclass, if there is one."""
        return _resolve(self.config) if self.config else None


def _resolve(reference: str) -> Any:
    module, _, attribute = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found

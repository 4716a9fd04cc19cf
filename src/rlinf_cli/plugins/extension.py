"""What a plugin offers: frozen descriptions, cheap to make, whose targets are imported only where they are used."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf_cli.errors import PluginError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_+-]*")
_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")


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
    """What the user writes: `--algo NAME`, `reward.name=NAME`. Letters, digits, `-`, `_`, `+`."""
    target: str
    """`module:attribute` of the implementation; imported in the process that uses it."""
    config: str = ""
    """`module:Dataclass` of its configuration keys; the module must not import torch, ray or transformers."""
    summary: str = ""
    """One line for `rlinf plugins`."""
    requires: tuple[str, ...] = ()
    """Distributions that must be installed (`pip` names, without version or extra); when one is missing the user is
    told how to install it."""
    extra: str = ""
    """The extra of the providing distribution that brings `requires`, for the install hint."""
    install: str = ""
    """The command of the install hint, where a plain `pip install` of `requires` or the extra would not do."""
    preset: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Dotted configuration keys and the defaults they take when this extension is chosen."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"Extension name {self.name!r} is not made of letters, digits, '-', '_' and '+'")
        for field_name, reference in (("target", self.target), ("config", self.config or "none:none")):
            if not _REFERENCE.fullmatch(reference):
                raise ValueError(f"Extension '{self.name}': {field_name} {reference!r} is not 'module:attribute'")
        if not isinstance(self.requires, tuple):
            raise ValueError(f"Extension '{self.name}': requires {self.requires!r} is not a tuple of names")
        for requirement in self.requires:
            if not _DISTRIBUTION.fullmatch(requirement):
                raise ValueError(f"Extension '{self.name}': {requirement!r} in requires is not a distribution name")

    def load(self) -> Any:
        """Import and return the target. Raises `PluginError` naming the target and the cause."""
        return self._import("target", self.target)

    def load_config(self) -> type | None:
        """Import and return the configuration dataclass, if there is one. Raises `PluginError` like `load`."""
        return self._import("config", self.config) if self.config else None

    def _import(self, role: str, reference: str) -> Any:
        try:
            return resolve(reference)
        except Exception as error:  # whatever a plugin's module raises while it is imported
            cause = describe(error)
            raise PluginError(f"the {role} '{reference}' of extension '{self.name}' did not load: {cause}") from error


def resolve(reference: str) -> Any:
    """Import `module` or `module:attribute` and return it."""
    module, _, attribute = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


def describe(error: BaseException) -> str:
    """The exception in one line; its type is told unless the message speaks for itself."""
    message = " ".join(str(error).split())
    if isinstance(error, (ImportError, PluginError)) and message:
        return message
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r}) was called"
    return f"{type(error).__name__}: {message}" if message else type(error).__name__

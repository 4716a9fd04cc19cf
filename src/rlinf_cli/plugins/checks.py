"""Checks what a plugin implements and returns, and says what is wrong in one sentence each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pluggy

from rlinf_cli import __version__
from rlinf_cli.errors import PluginError, suggestion
from rlinf_cli.plugins import hookspecs
from rlinf_cli.plugins.extension import Extension

_MANAGER = pluggy.PluginManager(hookspecs.GROUP)

HOOKS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)
    for name, function in vars(hookspecs).items()
    if _MANAGER.parse_hookspec_opts(hookspecs, name) is not None
}
"""Every hook of this version and the arguments that it gives."""


@dataclass(frozen=True)
class Implementation:
    """A function that was meant as a hook; `problem` is empty when it is a good one."""

    hook: str
    function: Callable[..., Any]
    problem: str = ""


def implementations(plugin: object) -> list[Implementation]:
    """The functions of a plugin that are marked with `hookimpl`, and those that only look like hooks."""
    found = [_implementation(plugin, name) for name in dir(plugin)]
    return [implementation for implementation in found if implementation is not None]


def checked(returned: object) -> tuple[Extension, ...]:
    """What a `register_*` hook returned, if it is a list of `Extension`; else `PluginError`."""
    if not isinstance(returned, (list, tuple)):
        raise PluginError(f"returned {_a(returned)}, not a list of Extension")
    for position, item in enumerate(returned):
        if not isinstance(item, Extension):
            raise PluginError(f"returned {_a(item)} at position {position} of its list, not an Extension")
    return tuple(returned)


def _implementation(plugin: object, name: str) -> Implementation | None:
    options = _MANAGER.parse_hookimpl_opts(plugin, name)
    if options is None:
        return _unmarked(plugin, name) if name in HOOKS else None
    function: Callable[..., Any] = getattr(plugin, name)
    hook = options["specname"] or name
    if hook not in HOOKS and options["optionalhook"]:
        return None
    return Implementation(hook, function, _unknown(hook) if hook not in HOOKS else _unfit(hook, function))


def _unmarked(plugin: object, name: str) -> Implementation | None:
    function = getattr(plugin, name)
    if not inspect.isroutine(function):
        return None
    problem = f"{name} is not marked as a hook: put @hookimpl (from rlinf_cli.api) above it"
    return Implementation(name, function, problem)


def _unknown(hook: str) -> str:
    hint = suggestion(hook, HOOKS) or " It may be written for a newer version"
    return f"{hook} is no hook of rlinf-cli {__version__}.{hint}"


def _unfit(hook: str, function: Callable[..., Any]) -> str:
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    unknown = [name for name in needed if name not in HOOKS[hook]]
    if not unknown:
        return ""
    return f"{hook} takes '{unknown[0]}', which rlinf-cli {__version__} does not give: is it for a newer version?"


def _a(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"

"""Loads every plugin in isolation: what is wrong with one is recorded on that one, and the others work."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rlinf_cli.errors import PluginError, UsageError, suggestion
from rlinf_cli.plugins.checks import Implementation, checked, implementations
from rlinf_cli.plugins.discovery import EntryPoint, discover, repeated
from rlinf_cli.plugins.extension import Extension, describe, resolve
from rlinf_cli.plugins.hookspecs import REGISTERED
from rlinf_cli.plugins.registry import Offer, PluginInfo, Plugins

__all__ = ["ENVIRONMENT", "Plugins", "load_plugins", "plugins"]

ENVIRONMENT = ("RLINF_PLUGINS", "RLINF_NO_PLUGINS", "RLINF_TRACE_PLUGINS")
"""The variables that decide which plugins a process has; a worker process needs the values of its driver."""

_KIND_OF_HOOK = {hook: kind for kind, hook in REGISTERED.items()}


def plugins() -> Plugins:
    """The plugins of this process, loaded at the first call, as `RLINF_PLUGINS` and `RLINF_NO_PLUGINS` say.

    Raises `UsageError` when `RLINF_PLUGINS` names a plugin that is not installed.
    """
    names = os.environ.get("RLINF_PLUGINS", "")
    return _loaded(tuple(filter(None, map(str.strip, names.split(",")))), not _flag("RLINF_NO_PLUGINS"))


def load_plugins(only: Sequence[str] | None = None, third_party: bool = True) -> Plugins:
    """Discover and load: those named in `only` (None: all), without those of other distributions if not `third_party`.

    Raises `UsageError` for a name in `only` that is not installed. Never raises for a broken plugin.
    """
    found = discover()
    _check_known(only or (), [entry.name for entry in found])
    chosen = [e for e in found if (only is None or e.name in only) and (third_party or not e.third_party)]
    claimed = repeated(chosen)
    return Plugins(
        [_load(entry, claimed.get(entry.name, [])) for entry in chosen],
        left_out=[entry.name for entry in found if entry not in chosen],
    )


@functools.cache
def _loaded(only: tuple[str, ...], third_party: bool) -> Plugins:
    return load_plugins(only or None, third_party)


def _check_known(only: Sequence[str], known: list[str]) -> None:
    for name in only:
        if name not in known:
            hint = suggestion(name, known)
            raise UsageError(
                f"RLINF_PLUGINS names '{name}', which is not installed.{hint} Installed: {', '.join(known)}"
            )


@dataclass
class _Record:
    """What is learnt about one plugin while it loads."""

    hooks: list[str] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    lifecycle: dict[str, tuple[Callable[..., None], ...]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    traceback: str = ""

    @contextlib.contextmanager
    def isolated(self, where: str = "") -> Iterator[None]:
        """Run a plugin's own code: what it raises becomes a problem, what it prints goes to stderr."""
        try:
            with contextlib.redirect_stdout(sys.stderr):
                yield
        except KeyboardInterrupt:
            raise
        except PluginError as error:
            self.problems.append(f"{where}{error}")
        except BaseException as error:  # SystemExit and the panics of native modules are no `Exception`
            self.problems.append(where + describe(error))
            self.traceback += traceback.format_exc()

    def offer(self, kind: str, extension: Extension) -> None:
        """Note an extension; `PluginError` when the plugin has registered that name before."""
        new = Offer(kind, extension)
        if any(offer.key == new.key for offer in self.offers):
            raise PluginError(f"registers '{extension.name}' twice")
        self.offers.append(new)


def _load(entry: EntryPoint, claimants: list[EntryPoint]) -> PluginInfo:
    _trace(f"discovered {entry}")
    info = PluginInfo(entry.name, entry.distribution, entry.version, entry.module)
    if entry.problem:
        return replace(info, state="failed", problem=entry.problem)
    if claimants:
        claims = " and ".join(map(str, claimants))
        problem = f"the plugin name is claimed by {claims}; none of them is used, uninstall all but one"
        return replace(info, state="failed", problem=problem)
    record = _loaded_record(entry)
    info = replace(info, hooks=tuple(dict.fromkeys(sorted(record.hooks))), provides=tuple(record.offers),
                   lifecycle=record.lifecycle)
    if record.problems:
        return replace(info, state="failed", problem="; ".join(record.problems), traceback=record.traceback)
    return info


def _loaded_record(entry: EntryPoint) -> _Record:
    record, start = _Record(), time.perf_counter()
    with record.isolated():
        plugin = resolve(entry.module.partition("[")[0].strip())
        _trace(f"loaded {entry.name} in {_ms(start)}")
        for implementation in implementations(plugin):
            if implementation.problem:
                record.problems.append(implementation.problem)
            else:
                _call(entry, implementation, record)
    return record


def _call(entry: EntryPoint, implementation: Implementation, record: _Record) -> None:
    hook, start = implementation.hook, time.perf_counter()
    record.hooks.append(hook)
    if hook not in _KIND_OF_HOOK:
        record.lifecycle[hook] = (*record.lifecycle.get(hook, ()), implementation.function)
        return
    with record.isolated(f"{hook}: "):
        extensions = checked(implementation.function())
        for extension in extensions:
            record.offer(_KIND_OF_HOOK[hook], extension)
        names = ", ".join(extension.name for extension in extensions)
        _trace(f"called {hook} of {entry.name} in {_ms(start)}: {names or 'nothing'}")


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "") not in ("", "0")


def _trace(message: str) -> None:
    if _flag("RLINF_TRACE_PLUGINS"):
        print(f"plugins: {message}", file=sys.stderr)


def _ms(start: float) -> str:
    return f"{(time.perf_counter() - start) * 1000:.1f} ms"

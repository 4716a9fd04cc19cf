"""What the loaded plugins offer, by kind and name, and why something is not available."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from rlinf_cli.errors import PluginError, RlinfError, UsageError, suggestion
from rlinf_cli.plugins.discovery import is_installed
from rlinf_cli.plugins.extension import Extension
from rlinf_cli.plugins.hookspecs import REGISTERED

State = Literal["ok", "needs", "conflict", "failed"]
"""`needs`: a required distribution is missing; `conflict`: another plugin registers the same name; `failed`: the plugin
is broken, nothing of it is used."""


@dataclass(frozen=True)
class Offer:
    """One extension of a plugin. When `state` is not `ok`, `problem` says why it cannot be used; for `needs` it is the
    command that installs what is missing."""

    kind: str
    extension: Extension
    state: State = "ok"
    problem: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What must be unique over all plugins."""
        return self.kind, self.extension.name

    def __str__(self) -> str:
        return f"{self.kind} {self.extension.name}"


@dataclass(frozen=True)
class PluginInfo:
    """One plugin as found: who it is, what it offers, its state and, if that is not `ok`, the reason."""

    name: str
    distribution: str
    version: str
    module: str
    hooks: tuple[str, ...] = ()
    provides: tuple[Offer, ...] = ()
    state: State = "ok"
    problem: str = ""
    traceback: str = field(default="", repr=False)
    lifecycle: Mapping[str, tuple[Callable[..., None], ...]] = field(default_factory=dict, repr=False, compare=False)
    """Lifecycle hook -> the plugin's functions for it."""

    @property
    def origin(self) -> str:
        """`'name' (distribution version)`, for sentences."""
        return f"'{self.name}' ({self.distribution} {self.version})"


class Plugins:
    """All plugins of this process. `left_out` names those that `RLINF_PLUGINS` or `--no-plugins` excluded."""

    def __init__(self, loaded: Iterable[PluginInfo], left_out: Sequence[str] = ()) -> None:
        infos = tuple(loaded)
        self.plugins = tuple(_judged(info, infos) for info in infos)
        self._left_out = tuple(left_out)

    def get(self, kind: str, name: str) -> Extension:
        """The extension of that kind and name.

        Raises `UsageError` for a name that no plugin registers, `PluginError` when the plugin that registers it failed,
        when two plugins register it, or when a distribution that it requires is not installed.
        """
        claims = self._claims(kind, name)
        healthy = [(info, offer) for info, offer in claims if info.state != "failed"] or claims
        if not healthy:
            raise self._absent(kind, name)
        info, offer = healthy[0]
        if info.state == "failed":
            raise PluginError(f"{kind} '{name}' is not available: {_failure(info)}")
        if offer.state == "conflict":
            raise PluginError(f"{kind} '{name}' cannot be used: {offer.problem}")
        if offer.state == "needs":
            missing = ", ".join(_missing(offer.extension))
            raise PluginError(
                f"{kind} '{name}' of plugin {info.origin} needs {missing}, not installed here; run: {offer.problem}"
            )
        return offer.extension

    def names(self, kind: str) -> list[str]:
        """The names of that kind, sorted, those included whose requirements are not installed."""
        return list(self.extensions(kind))

    def extensions(self, kind: str) -> dict[str, Extension]:
        """Name -> extension, sorted by name, for what `names` lists."""
        assert kind in REGISTERED
        offers = [offer for info in self.plugins if info.state != "failed" for offer in info.provides]
        usable = [offer.extension for offer in offers if offer.kind == kind and offer.state in ("ok", "needs")]
        return {extension.name: extension for extension in sorted(usable, key=lambda extension: extension.name)}

    def lifecycle(self, hook: str) -> list[tuple[PluginInfo, Callable[..., None]]]:
        """The functions of a lifecycle hook with their plugins, in a fixed order: those of rlinf-cli first, then by name."""
        infos = [info for info in self.plugins if info.state != "failed"]
        return [(info, function) for info in infos for function in info.lifecycle.get(hook, ())]

    def info(self, name: str) -> PluginInfo:
        """The plugin of that name; `UsageError` when there is none."""
        for info in self.plugins:
            if info.name == name:
                return info
        names = [info.name for info in self.plugins]
        raise UsageError(f"there is no plugin '{name}'.{suggestion(name, names)} See: rlinf plugins")

    def _claims(self, kind: str, name: str) -> list[tuple[PluginInfo, Offer]]:
        return [(info, offer) for info in self.plugins for offer in info.provides if offer.key == (kind, name)]

    def _absent(self, kind: str, name: str) -> RlinfError:
        failed = {info.name: info for info in self.plugins if info.state == "failed"}
        if name in failed:
            return PluginError(f"{kind} '{name}' is not available: {_failure(failed[name])}")
        names = self.names(kind)
        sentences = [
            f"unknown {kind} '{name}'.{suggestion(name, names)} Available: {', '.join(names) or 'none'}.",
            f"Plugins that failed: {', '.join(failed)}." if failed else "",
            f"Left out by RLINF_PLUGINS or --no-plugins: {', '.join(self._left_out)}." if self._left_out else "",
            "See: rlinf plugins",
        ]
        return UsageError(" ".join(filter(None, sentences)))


def _failure(info: PluginInfo) -> str:
    option = " --traceback" if info.traceback else ""
    return f"plugin {info.origin} failed: {info.problem} (rlinf plugins info {info.name}{option})"


def _judged(info: PluginInfo, infos: tuple[PluginInfo, ...]) -> PluginInfo:
    if info.state == "failed":
        return info
    provides = tuple(_judged_offer(offer, info, infos) for offer in info.provides)
    for state in ("conflict", "needs"):  # a conflict first: it needs a decision, the other only an installation
        problems = [_told(offer) for offer in provides if offer.state == state]
        if problems:
            return replace(info, provides=provides, state=state, problem="; ".join(dict.fromkeys(problems)))
    return replace(info, provides=provides)


def _told(offer: Offer) -> str:
    return offer.problem if offer.state == "needs" else f"{offer}: {offer.problem}"


def _judged_offer(offer: Offer, info: PluginInfo, infos: tuple[PluginInfo, ...]) -> Offer:
    healthy = [other for other in infos if other.state != "failed"]
    claimants = [other.origin for other in healthy if any(theirs.key == offer.key for theirs in other.provides)]
    if len(claimants) > 1:
        both = " and ".join(claimants)
        problem = f"registered by {both}; uninstall one, or list the plugins to use in RLINF_PLUGINS"
        return replace(offer, state="conflict", problem=problem)
    if _missing(offer.extension):
        return replace(offer, state="needs", problem=_installation(offer.extension, info.distribution))
    return offer


def _missing(extension: Extension) -> list[str]:
    return [name for name in extension.requires if not is_installed(name)]


def _installation(extension: Extension, distribution: str) -> str:
    if extension.install:
        return extension.install
    with_extra = f"'{distribution}[{extension.extra}]'"
    return f"pip install {with_extra if extension.extra else ' '.join(_missing(extension))}"

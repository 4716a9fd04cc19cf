"""`rlinf plugins check`: whether a plugin is fit for users, in what it says of itself and in what it does."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from typing import Any, Literal

from rlinf_cli.config.catalogue import meanings
from rlinf_cli.config.choose import name_key
from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.fields import KeySpec, extension_keys
from rlinf_cli.config.kinds import KINDS, Section, kinds
from rlinf_cli.config.load import resolve
from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import PluginError, RlinfError
from rlinf_cli.plugins.discovery import BUILTIN, normalized
from rlinf_cli.plugins.extension import describe
from rlinf_cli.plugins.registry import Offer, PluginInfo, Plugins

HEAVY = ("numpy", "ray", "torch", "transformers")
"""What neither an entry-point module nor that of a configuration may import: every command imports both."""

State = Literal["ok", "failed", "left out"]

_IMPORTED = """
import importlib, json, sys
found = {}
for module in sys.argv[2:]:
    before = set(sys.modules)
    try:
        importlib.import_module(module)
    except BaseException:
        continue  # told elsewhere
    found[module] = sorted(set(sys.argv[1].split(",")) & (set(sys.modules) - before))
print("\\n" + json.dumps(found))
"""


@dataclass(frozen=True)
class Finding:
    """One check of a plugin, or of an extension of it."""

    plugin: str
    extension: str
    """`reward polite`; empty for the plugin itself."""
    check: str
    state: State
    problem: str = ""
    """What is wrong, a sentence a line, or why the check was left out."""


def third_party(plugins: Plugins) -> list[PluginInfo]:
    """Those of other distributions than rlinf-cli."""
    return [info for info in plugins.plugins if normalized(info.distribution) != BUILTIN]


def check_plugin(info: PluginInfo, plugins: Plugins) -> Iterator[Finding]:
    """Every check of a plugin, in a fixed order; never raises for what the plugin does."""
    if info.state in ("failed", "conflict", "needs"):
        problem = f"run: {info.problem}" if info.state == "needs" else info.problem
        yield Finding(info.name, "", "loads", "failed", f"{info.state}: {problem}")
        if info.state == "failed":
            return
    else:
        yield Finding(info.name, "", "loads", "ok")
    heavy = heavy_imports(info)
    yield _tried(info, None, "light", lambda: _require_light(info.module, heavy, "the entry-point module"))
    yield _tried(info, None, "description", lambda: _require_description(info))
    for offer in info.provides:
        if offer.state == "ok":
            yield from _check_offer(info, offer, plugins, heavy)


def _check_offer(info: PluginInfo, offer: Offer, plugins: Plugins, heavy: dict[str, list[str]]) -> Iterator[Finding]:
    extension = offer.extension
    tried = functools.partial(_tried, info, offer)
    yield tried("summary", lambda: _require(bool(extension.summary), "it has no summary, which rlinf plugins shows"))
    yield tried("requires", lambda: _require_extra(info, offer))
    if extension.config:
        yield tried("config", lambda: _require_config(offer, heavy))
    target = tried("target", extension.load)
    yield target
    if target.state == "ok" and offer.kind == "command":
        yield tried("contract", lambda: _require_command(extension.load()))
    elif target.state == "ok":
        yield _conformance(info, offer, plugins)


def _conformance(info: PluginInfo, offer: Offer, plugins: Plugins) -> Finding:
    """Its preset is applied, and the check of its kind run with what comes out."""
    finding = functools.partial(Finding, info.name, str(offer), "contract")
    unset = [spec.key for spec in _keys(offer).values() if spec.default is MISSING and spec.key not in offer.extension.preset]
    if unset:
        return finding("left out", f"{unset[0]} must be set: only its author's tests can check it")
    try:
        config = _chosen(offer, plugins)
    except RlinfError as error:
        return finding("failed", f"its defaults or its preset are refused: {error}")
    columns = getattr(_settings(offer, config), "needs_columns", ())
    if columns:
        return finding("left out", f"it reads column '{columns[0]}' of the data: only its author's tests can check it")
    return _tried(info, offer, "contract", lambda: _checker(offer.kind)(offer.extension, *_arguments(offer, config)))


def _checker(kind: str) -> Callable[..., None]:
    from rlinf_cli.plugins import testing

    found: Callable[..., None] = getattr(testing, f"check_{kind}")
    return found


def _arguments(offer: Offer, config: RunConfig) -> tuple[Any, ...]:
    if offer.kind == "model":
        return ()
    if offer.kind == "agent":
        return _settings(offer, config), _tools(config)
    return (config,) if offer.kind == "workflow" else (_settings(offer, config),)


def _tools(config: RunConfig) -> list[Any] | None:
    """Those that its preset names; None: whichever the check has."""
    from rlinf_cli.workers.agents.build import build_tools

    return build_tools(config) or None


def _settings(offer: Offer, config: RunConfig) -> Any:
    return config.parts(_section(offer))[0].settings


def _chosen(offer: Offer, plugins: Plugins) -> RunConfig:
    """The configuration of a run that uses it and is otherwise as it comes."""
    name = offer.extension.name
    value = f"[{name}]" if offer.kind == "logger" else name
    return resolve([], [f"{name_key(_section(offer))}={value}"], {}, plugins)


def _keys(offer: Offer) -> dict[str, KeySpec]:
    try:
        return extension_keys(_section(offer), offer.extension)
    except PluginError:  # a finding of another check
        return {}


def _section(offer: Offer) -> Section:
    return next(section for section in KINDS if offer.kind in kinds(section))


def heavy_imports(info: PluginInfo) -> dict[str, list[str]]:
    """Module -> the heavy packages that it brings into a fresh process: of the entry point, and of configurations."""
    modules = [info.module, *(offer.extension.config for offer in info.provides if offer.extension.config)]
    names = [module.partition(":")[0].partition("[")[0].strip() for module in modules]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", _IMPORTED, ",".join(HEAVY), *dict.fromkeys(names)], capture_output=True,
                          env={**os.environ, **paths}, text=True, check=False)
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}
    return found


def _require_light(reference: str, heavy: dict[str, list[str]], what: str) -> None:
    module = reference.partition(":")[0].partition("[")[0].strip()
    found = heavy.get(module, [])
    _require(not found, f"{what} {module} imports {', '.join(found)}, which makes every command slow: import it in functions, or "
                        "in the module of the target")


def _require_description(info: PluginInfo) -> None:
    metadata = importlib.metadata.metadata(info.distribution).json
    for name, key in ("summary", "description"), ("description", "readme"):
        _require(bool(str(metadata.get(name, "")).strip()), f"{info.distribution} has no {key} in its pyproject.toml")


def _require_extra(info: PluginInfo, offer: Offer) -> None:
    extra = offer.extension.extra
    extras = importlib.metadata.metadata(info.distribution).get_all("Provides-Extra") or []
    _require(not extra or normalized(extra) in map(normalized, extras),
             f"its extra '{extra}' is none of {info.distribution} ({', '.join(extras) or 'it has none'}): the command that users "
             "are told would install nothing")


def _require_config(offer: Offer, heavy: dict[str, list[str]]) -> None:
    extension = offer.extension
    _require(offer.kind not in ("workflow", "command"), f"it has a configuration, but a {offer.kind} has no keys")
    _require_light(extension.config, heavy, "the module of its configuration")
    for spec in extension_keys(_section(offer), extension).values():
        _require(bool(meanings(spec.home).get(spec.field)),
                 f"{spec.key} has no docstring under it in {extension.config}, which is its help text")
        if spec.default is not MISSING:
            _require_valid(spec)


def _require_command(target: Any) -> None:
    import click

    _require(isinstance(target, click.Command), f"a command must be one of click, or a group, not a {type(target).__name__}")


def _require_valid(spec: KeySpec) -> None:
    try:
        spec.read(spec.default)
    except ValueError as error:
        raise PluginError(f"the default of {spec.key}, {spec.default!r}, breaks its own rule: it {error}") from error


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise PluginError(sentence)


def _tried(info: PluginInfo, offer: Offer | None, check: str, action: Callable[[], Any]) -> Finding:
    """What comes of a check; what the plugin prints meanwhile goes to stderr."""
    finding = functools.partial(Finding, info.name, str(offer or ""), check)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            action()
    except (AssertionError, PluginError, ConfigError) as violation:
        return finding("failed", str(violation))
    except (Exception, SystemExit) as error:  # whatever a plugin's code raises is a finding about it
        return finding("failed", describe(error))
    return finding("ok")

"""`rlinf plugins`: what is installed, what it provides, why something does not work, and how to write another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from rlinf_cli.commands._shell import emit, table
from rlinf_cli.errors import PluginError
from rlinf_cli.plugins.discovery import discover
from rlinf_cli.plugins.hookspecs import KINDS
from rlinf_cli.plugins.loader import plugins as load
from rlinf_cli.plugins.registry import Offer, PluginInfo

if TYPE_CHECKING:
    from rlinf_cli.runs.plugin_check import Finding

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(invoke_without_command=True)
@_JSON
@click.pass_context
def plugins(ctx: click.Context, as_json: bool) -> None:
    """List plugins (as `list` does), look at one, write one, or check some."""
    ctx.default_map = {name: {"as_json": as_json} for name in ("list", "info", "check")}
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, as_json=as_json)


@plugins.command("list")
@_JSON
def list_(as_json: bool) -> None:
    """Show every plugin: version, distribution, what it provides, state."""
    found = load().plugins
    emit([_summary(info) for info in found], as_json, lambda: _listing(found))


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    names = sorted({entry.name for entry in discover()})
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@plugins.command()
@click.argument("name", shell_complete=_complete)
@click.option("--traceback", "with_traceback", is_flag=True, help="Show where a failed plugin raised.")
@_JSON
def info(name: str, with_traceback: bool, as_json: bool) -> None:
    """Show what the plugin NAME provides, its hooks and its problem."""
    found = load().info(name)
    emit(_details(found), as_json, lambda: _page(found, with_traceback))


class _Kind(click.Choice[str]):
    """A kind of extension; a missing one is told in a line."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return f"Choose from: {', '.join(self.choices)}."


@plugins.command()
@click.argument("name")
@click.option("--kind", required=True, type=_Kind(list(KINDS)), help="What the plugin adds.")
@click.option("--directory", type=click.Path(file_okay=False, path_type=Path), default=Path(), metavar="DIR",
              help="Where the package's directory is made (default: here).")
def new(name: str, kind: str, directory: Path) -> None:
    """Write a package rlinf-NAME that adds a working extension, with tests, for you to change."""
    from rlinf_cli.plugins.scaffold import scaffold

    root = scaffold(name, kind, directory, load())
    click.echo(f"{root}\nnext  pip install -e '{root}[test]' && pytest {root} && rlinf plugins check {name}")


@plugins.command()
@click.argument("names", nargs=-1, shell_complete=_complete)
@_JSON
def check(names: tuple[str, ...], as_json: bool) -> None:
    """Check the plugins NAMES (all third-party ones): what they say of themselves, and that they keep their contracts."""
    from rlinf_cli.runs.plugin_check import check_plugin, third_party

    found = load()
    infos = [found.info(name) for name in names] or third_party(found)
    findings = [finding for info in infos for finding in check_plugin(info, found)]
    emit([asdict(finding) for finding in findings], as_json, lambda: _findings(findings))
    failed = [finding for finding in findings if finding.state == "failed"]
    if failed:
        raise PluginError(f"{len(failed)} of {len(findings)} checks failed, the first of plugin '{failed[0].plugin}': "
                          f"{failed[0].problem.splitlines()[0]}")


def _findings(findings: Sequence[Finding]) -> Any:
    if not findings:
        return "there are no third-party plugins here; name others to check them: rlinf plugins check NAME"
    rows = [(one.plugin, one.extension, one.check, f"{one.state}: {line}" if line else one.state)
            for one in findings for line in one.problem.splitlines() or [""]]
    return table(("plugin", "extension", "check", "state"), rows)


def _summary(info: PluginInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "version": info.version,
        "distribution": info.distribution,
        "provides": [{"kind": offer.kind, "name": offer.extension.name} for offer in info.provides],
        "state": info.state,
        "problem": info.problem,
    }


def _details(info: PluginInfo) -> dict[str, Any]:
    provides = [_offer(offer) for offer in info.provides]
    more = {"module": info.module, "hooks": list(info.hooks), "traceback": info.traceback}
    return {**_summary(info), "provides": provides, **more}


def _offer(offer: Offer) -> dict[str, Any]:
    extension = offer.extension
    return {
        "kind": offer.kind,
        "name": extension.name,
        "summary": extension.summary,
        "target": extension.target,
        "config": extension.config,
        "requires": list(extension.requires),
        "state": offer.state,
        "problem": offer.problem,
    }


def _listing(found: tuple[PluginInfo, ...]) -> Any:
    rows = [(info.name, info.version, info.distribution, _provides(info), _state(info)) for info in found]
    return table(("plugin", "version", "from", "provides", "state"), rows)


def _provides(info: PluginInfo) -> str:
    return ", ".join(map(str, info.provides)) or "—"


def _state(info: PluginInfo) -> str:
    where = f" (rlinf plugins info {info.name} --traceback)" if info.traceback else ""
    return f"{info.state}: {info.problem}{where}" if info.problem else info.state


def _page(info: PluginInfo, with_traceback: bool) -> Any:
    rows = [
        ("plugin", f"{info.name} {info.version}"),
        ("from", info.distribution),
        ("module", info.module),
        ("hooks", ", ".join(info.hooks) or "—"),
        ("state", _state(replace(info, traceback="" if with_traceback else info.traceback))),
    ]
    for offer in info.provides:
        rows += [("", ""), *((label, value) for label, value in _facts(offer) if value)]
    if with_traceback and info.traceback:
        rows += [("", ""), ("traceback", info.traceback.rstrip())]
    return table(("", ""), rows)


def _facts(offer: Offer) -> list[tuple[str, str]]:
    extension = offer.extension
    return [
        (offer.kind, extension.name),
        ("summary", extension.summary),
        ("target", extension.target),
        ("config", extension.config),
        ("requires", ", ".join(extension.requires)),
        ("state", f"{offer.state}: {offer.problem}" if offer.problem else offer.state),
    ]

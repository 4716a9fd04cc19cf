"""`rlinf config`: the keys there are, the values that hold, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._options import resolved, run_options
from rlinf_cli.commands._shell import emit, table

if TYPE_CHECKING:
    from rlinf_cli.config.catalogue import Entry
    from rlinf_cli.config.schema import RunConfig

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group()
def config() -> None:
    """Show configuration keys, values and the schema."""


@config.command()
@run_options
@click.option("--origins", is_flag=True, help="Say where each value came from.")
@_JSON
def show(origins: bool, as_json: bool, **params: Any) -> None:
    """Print the configuration that CONFIG files and KEY=VALUE arguments give, as a CONFIG file.

    From low to high: the defaults, the presets of the chosen extensions, CONFIG files from left to right, KEY=VALUE.
    """
    found = resolved(params)
    if as_json:
        emit(_with_origins(found) if origins else found.to_dict(), True, str)
    else:
        click.echo(found.to_yaml(origins), nl=False)


def _with_origins(found: RunConfig) -> dict[str, Any]:
    dotted = ((f"{section}.{name}" if section else name, value) for section, name, value in found.items())
    return {key: {"value": value, "origin": found.origin(key)} for key, value in dotted}


@config.command()
@click.argument("prefix", default="")
@click.option("--markdown", is_flag=True, help="Print Markdown tables, as in the documentation.")
@_JSON
def keys(prefix: str, markdown: bool, as_json: bool) -> None:
    """List the keys (below PREFIX), of the core and of every installed extension."""
    from rlinf_cli.config.catalogue import catalogue, markdown_tables, matching
    from rlinf_cli.plugins.loader import plugins

    entries = matching(prefix, catalogue(plugins()))
    if markdown:
        click.echo(markdown_tables(entries), nl=False)
    else:
        emit([_facts(entry) for entry in entries], as_json, lambda: _listing(entries))


def _facts(entry: Entry) -> dict[str, str]:
    return {"key": entry.key, "type": entry.type, "default": entry.default, "limits": entry.limits,
            "meaning": entry.meaning, "owner": entry.owner}


def _listing(entries: list[Entry]) -> Any:
    rows = [(e.key, e.type, e.default, e.owner, e.meaning_with_limits) for e in entries]
    return table(("key", "type", "default", "owner", "meaning"), rows)


@config.command()
def schema() -> None:
    """Print a JSON Schema of CONFIG files, for editors."""
    from rlinf_cli.config.catalogue import catalogue
    from rlinf_cli.config.json_schema import json_schema
    from rlinf_cli.plugins.loader import plugins

    emit(json_schema(catalogue(plugins())), True, str)

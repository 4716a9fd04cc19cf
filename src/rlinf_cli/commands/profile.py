"""`rlinf profile`: what each role costs on this machine, for `rlinf plan` and `rlinf train`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._options import resolved, run_options
from rlinf_cli.commands._shell import console, emit, table

if TYPE_CHECKING:
    from rlinf_cli.runs.profiling import Profiled, Session


def _names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in value.split(",") if one.strip())


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    names = _names(ctx, param, value)
    if not all(one.isascii() and one.isdigit() and int(one) for one in names):
        raise click.BadParameter(f"'{value}' is no list of numbers above 0: write 4,8,16")
    return tuple(map(int, names))


@click.command()
@run_options
@click.option("--roles", callback=_names, default="", metavar="ROLE,...", help="Keep these only; others run beside them.")
@click.option("--batch-sizes", "batches", callback=_sizes, default="", metavar="N,...",
              help="Prompts in a step.  [default: a quarter, half and all of rollout.prompts]")
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True, metavar="N",
              help="Steps of each size on each number of devices, as far as the budget goes.")
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, metavar="SECONDS",
              help="Time to measure for; starting and ending processes comes on top.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the profile there.  [default: a file in ~/.cache/rlinf/profiles, where plan and train find it]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def profile(roles: tuple[str, ...], batches: tuple[int, ...], repeat: int, budget: float, out: Path | None, as_json: bool,
            **params: Any) -> None:
    """Measure what each role of a run costs here: time, memory, switches, decode steps, lengths of responses.

    CONFIG is a YAML file, KEY=VALUE sets a single key, later ones win. Real steps are run, on one device, two, four, and so on;
    nothing is kept of the policy.
    """
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs.profiling import Wanted, keep, open_profile

    session = open_profile(resolved(params), Wanted(batches, repeat, budget, roles), plugins())
    found = _measured(session)
    path = keep(found.profile, out, is_whole=not roles)
    emit(found.document(path), as_json, lambda: _page(found, path))


def _measured(session: Session) -> Profiled:
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs.profiling import measure
    from rlinf_cli.runs.progress import progress

    with progress(1, 1, sys.stderr) as shown:
        return measure(session, plugins(), shown)


def _page(found: Profiled, path: Path | None) -> Any:
    from rich.console import Group

    from rlinf_cli.runs.profiling_report import decoding_lines, facts, length_lines, rows

    ascii_only = not console().encoding.lower().startswith("utf")
    parts: list[Any] = [table(("role", "ranks", "samples", "seconds", "per sample", "memory/rank"), rows(found.profile))]
    for lines in (decoding_lines(found.profile, ascii_only), length_lines(found.profile, ascii_only)):
        parts += ["", *lines] if lines else []
    parts += ["", *(f"{label:<11}{text}" for label, text in facts(found, path))]
    return Group(*parts)

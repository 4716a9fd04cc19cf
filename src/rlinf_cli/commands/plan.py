"""`rlinf plan`: which role should run where, and what every other choice would cost."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._options import resolved, run_options
from rlinf_cli.commands._shell import emit, table

if TYPE_CHECKING:
    from rlinf_cli.runs.planned import Planned


@click.command()
@run_options
@click.option("--profile", "source", metavar="FILE|analytic:HARDWARE",
              help="What to plan with: a file of rlinf profile, or an estimate for h100, h200 or a100. By default the newest "
                   "profile that matches.")
@click.option("--top", type=click.IntRange(min=1), default=8, show_default=True, metavar="K", help="Plans to simulate and show.")
@click.option("--explain", is_flag=True, help="Show why the others lose, and where each device's time goes.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the plan there, to be edited, simulated, or trained with: placement=FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def plan(source: str | None, top: int, explain: bool, out: Path | None, as_json: bool, **params: Any) -> None:
    """Find the fastest placement of a run's roles. Nothing is started.

    CONFIG is a YAML file, KEY=VALUE sets a single key, later ones win. --devices N plans for N devices, whether this machine has
    them or not, and --profile analytic:h100 for a --model that it need not have (qwen2.5-7b, ...). A placement that is given
    is shown beside the others.
    """
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs.planned import plan_run
    from rlinf_cli.runs.profiles import ANALYTIC

    count = params["devices"] if (params["devices"] or "").isdigit() else None
    shape = params["model"] if (source or "").startswith(ANALYTIC) else None  # a model that nobody needs to have
    config = resolved(params | ({"devices": None} if count else {}) | ({"model": None} if shape else {}))
    planned = plan_run(config, plugins(), source, int(count or 0), top, shape or "")
    if out is not None:
        planned.save(out)
    emit(planned.document(), as_json, lambda: _page(planned, explain, out))


def _page(planned: Planned, explain: bool, out: Path | None) -> Any:
    from rich.console import Group

    from rlinf_cli.scheduling.explain import footer

    columns = ("", "plan", "predicted s/iteration", "bound by", "memory/device", "verdict")
    parts: list[Any] = [table(columns, list(_rows(planned)))]
    if explain:
        parts += ["", *_times(planned)]
    parts += ["", *footer(planned.found, planned.problem, planned.profile)]
    if out is not None:
        parts.append(f"written: {out}   use it: rlinf train ... placement={out}")
    return Group(*parts)


def _rows(planned: Planned) -> Iterator[tuple[str, ...]]:
    for row in planned.rows():
        behind = f" (+{row.behind * 100:.0f} %)" if row.behind > 0.005 else ""
        seconds = f"{row.step_s:.4g}{behind}" if isfinite(row.step_s) else "impossible"
        yield row.mode, row.plan, seconds, row.bound_by, f"{row.memory / 1e9:.3g} GB" if row.memory else "", row.verdict


def _times(planned: Planned) -> Iterator[Any]:
    """Where the devices' time goes in the chosen plan."""
    from rlinf_cli.scheduling.explain import states, times

    groups = times(planned.found.best)
    shown = states(groups)
    rows = [(group.group, str(group.devices), *(_share(group.states, state) for state in shown)) for group in groups]
    yield table(("devices of", "number", *shown), rows)


def _share(states: Any, state: str) -> str:
    total = sum(states.values()) or 1.0
    seconds = states.get(state, 0.0)
    return f"{seconds:.3g} s {seconds / total * 100:.0f} %" if seconds > 1e-6 * total else ""

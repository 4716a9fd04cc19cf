"""`rlinf simulate`: what would a plan do, here or on a thousand devices?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlinf_cli.commands._options import resolved, run_options
from rlinf_cli.commands._shell import emit, table

if TYPE_CHECKING:
    from rlinf_cli.runs.simulation import Simulated


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@run_options
@click.option("--profile", "source", metavar="FILE|analytic:HARDWARE",
              help="What roles cost: a file of rlinf profile, or an estimate for h100, h200 or a100. By default the plan's own, "
                   "else the newest that matches.")
@click.option("--lengths", default="", metavar="SPEC",
              help="Lengths of responses: constant:TOKENS, lognormal:MEAN,SIGMA or pareto:LEAST,ALPHA; by default as measured.")
@click.option("--iterations", type=click.IntRange(min=2), metavar="N",
              help="Steps to simulate; by default as many as show the long run.")
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write there what each device did when, for ui.perfetto.dev.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def simulate(plan: Path, source: str | None, lengths: str, iterations: int | None, trace: Path | None, as_json: bool,
             **params: Any) -> None:
    """Execute PLAN in a simulation. Nothing is started.

    PLAN is a file of rlinf plan, or a run's directory, whose configuration is then used. CONFIG and KEY=VALUE are as for rlinf
    train. With --devices N each role gets the same share of N devices, whether this machine has them or not.
    """
    from rlinf_cli.plugins.loader import plugins
    from rlinf_cli.runs.profiles import ANALYTIC
    from rlinf_cli.runs.simulation import profile_of, simulate_plan, write_trace

    count = params["devices"] if (params["devices"] or "").isdigit() else None
    shape = params["model"] if (source or profile_of(plan)).startswith(ANALYTIC) else None  # a model that nobody needs to have
    before = [own] if (own := plan / "config.yaml").is_file() else []
    config = resolved(params | ({"devices": None} if count else {}) | ({"model": None} if shape else {}), before)
    done = simulate_plan(plan, config, plugins(), source, int(count or 0), lengths, iterations or 0, shape or "")
    if trace is not None:
        write_trace(done, trace)
    emit(done.document(), as_json, lambda: _page(done, trace))


def _page(done: Simulated, trace: Path | None) -> Any:
    from rich.console import Group

    from rlinf_cli.scheduling.explain import label, states

    shown = states(done.groups)
    rows = [(group.group, str(group.devices), *(_share(group.states, state) for state in shown),
             f"{group.memory / 1e9:.3g} GB" if group.memory else "") for group in done.groups]
    return Group(f"{done.plan.mode}  {label(done.plan)}", "", table(("devices of", "number", *shown, "memory/device"), rows), "",
                 *_lines(done, trace))


def _share(states: Mapping[str, float], state: str) -> str:
    total = sum(states.values()) or 1.0
    return f"{states.get(state, 0.0) / total * 100:.1f} %"


def _lines(done: Simulated, trace: Path | None) -> Iterator[str]:
    from rlinf_cli.scheduling.explain import sources

    prediction = done.plan.prediction
    assert prediction is not None
    yield (f"{prediction.step_s:.4g} s an iteration ({len(done.simulation.ends)} simulated), {done.tokens_per_s:.4g} tokens/s, "
           f"bound by {prediction.bound_by}")
    yield from sources(done.problem, prediction, done.profile)
    if trace is not None:
        yield f"each call: open {trace} in ui.perfetto.dev"

"""`rlinf trace`: where the time of a run's steps went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from rlinf_cli.commands._shell import emit, table
from rlinf_cli.runs.breakdown import STATES, DeviceTime, mean
from rlinf_cli.runs.naming import locate
from rlinf_cli.runs.trace import TracedStep, copy_trace, read_trace


@click.command()
@click.argument("run")
@click.option("--steps", type=click.IntRange(min=1), metavar="N",
              help="Look at the last N steps only, of those that the trace holds.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the trace there too, for ui.perfetto.dev.")
@click.option("--runs-dir", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
              help="Directory of the run directories.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def trace(run: str, steps: int | None, out: Path | None, runs_dir: Path, as_json: bool) -> None:
    """Show how busy each device of RUN was: which role computed, what was waited for.

    RUN is a run's directory, or its name. Its trace.json holds the last log.trace steps.
    """
    path = locate(run, runs_dir).run / "trace.json"
    held = read_trace(path)
    looked_at = held[-steps:] if steps else held
    if out is not None:
        copy_trace(path, out)
    emit(_document(looked_at, out or path), as_json, lambda: _page(looked_at, len(held), out or path))


def _devices(steps: Sequence[TracedStep]) -> dict[str, DeviceTime]:
    """Name -> its mean over the steps."""
    names = dict.fromkeys(name for step in steps for name in step.devices)
    return {name: mean([step.devices[name] for step in steps if name in step.devices]) for name in names}


def _seconds(steps: Sequence[TracedStep]) -> float:
    """Of a step, in the mean."""
    return sum(step.seconds for step in steps) / len(steps) if steps else 0.0


def _document(steps: Sequence[TracedStep], path: Path) -> dict[str, Any]:
    devices = _devices(steps)
    return {"trace": str(path), "steps": [step.number for step in steps], "step_s": _seconds(steps), "devices": devices,
            "mean": mean(list(devices.values()))}


def _page(steps: Sequence[TracedStep], held: int, path: Path) -> Any:
    from rich.console import Group

    if not steps:
        return f"{path} holds no steps yet"
    numbers = f"{steps[0].number} to {steps[-1].number}" if len(steps) > 1 else str(steps[0].number)
    devices = _devices(steps)
    total = mean(list(devices.values()))
    shown = [state for state, seconds in total.items() if seconds or state not in STATES]
    rows = [*devices.items(), *([("mean", total)] if len(devices) > 1 else [])]
    return Group(f"steps {numbers} ({len(steps)} of {held} that the trace holds), {_seconds(steps):.3g} s each", "",
                 table(("device", *shown), [tuple(_row(name, times, shown)) for name, times in rows]), "",
                 f"each call: open {path} in ui.perfetto.dev")


def _row(name: str, times: DeviceTime, states: Sequence[str]) -> Iterator[str]:
    total = sum(times.values()) or 1.0
    yield name
    for state in states:
        yield f"{times.get(state, 0.0) / total * 100:.1f} %"

"""`rlinf runs`: what runs there are, one of them, several beside each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from rlinf_cli.commands._shell import emit, table
from rlinf_cli.runs.compare import Comparison, Reached, compare_runs
from rlinf_cli.runs.listing import Listed, Saved, Shown, list_runs, show_run
from rlinf_cli.runs.metrics import describe
from rlinf_cli.runs.naming import locate
from rlinf_cli.runs.settings import shown
from rlinf_cli.runs.sparkline import compact, data_size
from rlinf_cli.runs.summary import duration, next_lines

_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_RUNS_DIR = click.option("--runs-dir", type=click.Path(path_type=Path), default=Path("runs"), show_default=True,
                         help="Directory of the run directories.")


@click.group(invoke_without_command=True)
@_RUNS_DIR
@_JSON
@click.pass_context
def runs(ctx: click.Context, runs_dir: Path, as_json: bool) -> None:
    """List the runs (as `list` does), look at one, or compare some."""
    given = {"runs_dir": runs_dir, "as_json": as_json}
    ctx.default_map = {"list": given, "show": given, "compare": given}
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_, **given)


@runs.command("list")
@_RUNS_DIR
@_JSON
def list_(runs_dir: Path, as_json: bool) -> None:
    """Show every run, the newest first."""
    found = list_runs(runs_dir)
    emit([_listed(run) for run in found], as_json, lambda: _listing(found, runs_dir))


@runs.command()
@click.argument("run")
@_RUNS_DIR
@_JSON
def show(run: str, runs_dir: Path, as_json: bool) -> None:
    """Show the attempts, checkpoints and last metrics of RUN, and how to go on.

    RUN is a run's directory, or its name.
    """
    found = show_run(locate(run, runs_dir).run)
    emit(_document(found), as_json, lambda: "\n".join(_page(found)))


@runs.command()
@click.argument("names", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--metric", default="reward/mean", show_default=True, metavar="[-]METRIC",
              help="Compare by this metric; with - before it, less is better.")
@_RUNS_DIR
@_JSON
def compare(names: tuple[str, ...], metric: str, runs_dir: Path, as_json: bool) -> None:
    """Compare runs: the settings in which they differ, and what each reached at what cost."""
    found = compare_runs(names, metric, runs_dir)
    emit(_jsonable(asdict(found)), as_json, lambda: _comparison(found))


def _jsonable(document: Any) -> Any:
    """With paths as text."""
    if isinstance(document, Mapping):
        return {key: _jsonable(value) for key, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [_jsonable(value) for value in document]
    return str(document) if isinstance(document, Path) else document


def _listed(run: Listed) -> dict[str, Any]:
    document: dict[str, Any] = _jsonable(asdict(run))
    return document


def _listing(found: Sequence[Listed], runs_dir: Path) -> Any:
    if not found:
        return f"no runs in {runs_dir}/: rlinf train begins one"
    now = time.time()
    return table(("name", "status", "steps", "reward", "tokens/s", "age", "size"),
                 [(run.name, run.status, _steps(run), _reward(run), _compact(run.tokens_per_s), _age(run, now),
                   data_size(run.size)) for run in found])


def _steps(run: Listed) -> str:
    return f"{run.step}/{run.steps}" if run.steps else str(run.step)


def _reward(run: Listed) -> str:
    return f"{_number(run.first_reward)} → {_number(run.reward)}" if run.reward is not None else "–"


def _age(run: Listed, now: float) -> str:
    if run.created is None:
        return "–"
    seconds = max(0.0, now - run.created)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if 0 < abs(value) < 0.01 or abs(value) >= 1e6 else f"{value:.2f}"


def _compact(value: float | None) -> str:
    return "–" if value is None else compact(value)


def _document(found: Shown) -> dict[str, Any]:
    return {**_listed(found.listed), "parent": found.record.get("parent"), "attempts": found.record["attempts"],
            "checkpoint_best": found.best, "checkpoints": [asdict(one) for one in found.checkpoints],
            "metrics": found.rows[-1] if found.rows else {}}


def _page(found: Shown) -> Iterator[str]:
    run, parent = found.listed, found.record.get("parent")
    yield f"run        {run.path}"
    yield f"status     {run.status}, {_steps(run)} steps, {data_size(run.size)}"
    if parent:
        yield f"fork of    {parent['run']}, step {parent['step']}"
    yield from _attempts(found.record["attempts"])
    yield from _checkpoints(found.checkpoints, found.best)
    yield from _metrics(found.rows[-1] if found.rows else {})
    yield from next_lines(run.path, found.rows)


def _labelled(label: str, lines: Sequence[str]) -> Iterator[str]:
    yield from (f"{'' if number else label:<11}{line}" for number, line in enumerate(lines))


def _attempts(attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield from _labelled("attempts", [f"{one.get('number')}  {one.get('start')}  {one.get('host')}  "
                                      f"{one.get('exit') or 'has left no word of its end'}" for one in attempts])


def _checkpoints(saved: Sequence[Saved], best: str) -> Iterator[str]:
    yield from _labelled("saved", [_checkpoint(one, best) for one in saved])


def _checkpoint(one: Saved, best: str) -> str:
    marks = [*(["latest"] if one.is_latest else []), *(["best"] if one.is_best else []),
             *([f"damaged: {'; '.join(one.problems)}"] if one.problems else [])]
    score = f"  {best.removeprefix('-')} {_number(one.score)}" if one.score is not None else ""
    return f"step {one.step}  {data_size(one.size)}{score}" + (f"  {', '.join(marks)}" if marks else "")


def _metrics(row: Mapping[str, float]) -> Iterator[str]:
    names = [name for name in row if "/" in name]
    units = {name: (found.unit if (found := describe(name)) else "") for name in names}
    width = max(map(len, names), default=0)
    yield from _labelled(f"step {row.get('step', 0):.0f}", [f"{name:<{width}}  {_number(row[name])} {units[name]}".rstrip()
                                                            for name in names])


def _comparison(found: Comparison) -> Any:
    from rich.console import Group

    names = [run.name for run in found.runs]
    settings = [(key, *map(shown, values)) for key, values in found.settings.items()]
    reached = [(label, *map(cell, found.runs)) for label, cell in _cells(found).items()]
    return Group(table(("setting", *names), settings) if settings else "the settings are the same", "",
                 table((found.metric, *names), reached))


def _cells(found: Comparison) -> dict[str, Callable[[Reached], str]]:
    goal = _number(found.goal)
    return {
        "first": lambda run: _number(run.first),
        "final (last tenth)": lambda run: _number(run.final),
        "best": _best,
        f"step to {goal}": lambda run: "–" if run.step_to_goal is None else str(run.step_to_goal),
        f"tokens to {goal}": lambda run: _compact(run.tokens_to_goal),
        f"time to {goal}": lambda run: _duration(run.seconds_to_goal),
        "steps": lambda run: str(run.steps),
        "tokens": lambda run: _compact(run.tokens),
        "time": lambda run: _duration(run.seconds),
        "tokens/s": lambda run: _compact(run.tokens_per_s),
    }


def _best(run: Reached) -> str:
    return "–" if run.best is None else f"{_number(run.best)} at step {run.best_step}"


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)

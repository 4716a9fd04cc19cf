"""Runs beside each other: the settings in which they differ, and what each has reached."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlinf_cli.errors import UsageError, did_you_mean
from rlinf_cli.runs.metrics import read_metrics
from rlinf_cli.runs.naming import locate
from rlinf_cli.runs.settings import read_settings
from rlinf_cli.runs.summary import final, finite, tokens_per_s, window

_ITSELF = ("name", "runs_dir")
"""Keys in which runs always differ."""


@dataclass(frozen=True)
class Reached:
    """What a run has reached by one metric. What it has not is None."""

    name: str
    path: Path
    steps: int
    tokens: float | None
    seconds: float
    """Sum of the steps' wall times."""
    tokens_per_s: float | None
    first: float | None
    final: float | None
    """Mean over the last tenth of its steps."""
    best: float | None
    best_step: int | None
    step_to_goal: int | None = None
    """The first step at which the mean over as many steps as the last tenth has is as good as the comparison's `goal`."""
    tokens_to_goal: float | None = None
    seconds_to_goal: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Runs in the order in which they were named."""

    metric: str
    """`-` before it: less is better."""
    goal: float | None
    """The worst final value of them: what all have reached."""
    runs: Sequence[Reached]
    settings: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Key -> its value in each run, of the keys that differ."""


def compare_runs(references: Sequence[str], metric: str, runs: Path = Path("runs")) -> Comparison:
    """Compare runs by a metric; `-METRIC`: less is better.

    Raises UsageError when a run cannot be found or read, or no run has the metric.
    """
    paths = [locate(reference, runs).run for reference in references]
    rows = [read_metrics(path / "metrics.jsonl") for path in paths]
    plain, sign = metric.removeprefix("-"), -1.0 if metric.startswith("-") else 1.0
    _check_metric(plain, rows)
    finals = [final(values) for one in rows if (values := finite(one, plain))]
    goal = min(finals, key=lambda value: sign * value)
    names = _names(paths)
    return Comparison(metric, goal, [_reached(*one, plain, sign, goal) for one in zip(names, paths, rows)],
                      _differing([read_settings(path / "config.yaml") for path in paths]))


def _check_metric(metric: str, rows: Sequence[Sequence[Mapping[str, float]]]) -> None:
    if not any(finite(one, metric) for one in rows):
        known = sorted({name for one in rows for row in one for name in row if "/" in name})
        raise UsageError(f"none of these runs has a step with the metric {metric!r}{did_you_mean(metric, known)}")


def _names(paths: Sequence[Path]) -> list[str]:
    """Their directories' names, or their paths where those are alike."""
    names = [path.resolve().name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def _reached(name: str, path: Path, rows: Sequence[Mapping[str, float]], metric: str, sign: float, goal: float) -> Reached:
    having = [row for row in rows if math.isfinite(row.get(metric, math.nan))]
    seconds = sum(finite(rows, "timing/step_s"))
    base = Reached(name, path, int(rows[-1]["step"]) if rows else 0, _tokens(rows), seconds, tokens_per_s(rows),
                   None, None, None, None)
    if not having:
        return base
    values = [row[metric] for row in having]
    best = max(having, key=lambda row: sign * row[metric])
    reached = _first_as_good(values, sign, goal)
    to_goal = [] if reached is None else [row for row in rows if row["step"] <= having[reached]["step"]]
    return Reached(name, path, base.steps, base.tokens, seconds, base.tokens_per_s, values[0], final(values), best[metric],
                   int(best["step"]), *_cost(to_goal))


def _cost(rows: Sequence[Mapping[str, float]]) -> tuple[int | None, float | None, float | None]:
    """Step, tokens and seconds at the end of these rows."""
    return (int(rows[-1]["step"]), _tokens(rows), sum(finite(rows, "timing/step_s"))) if rows else (None, None, None)


def _first_as_good(values: Sequence[float], sign: float, goal: float) -> int | None:
    """The first place at which the mean over the window that ends there is as good as the goal."""
    size = window(len(values))
    for end in range(size, len(values) + 1):
        if sign * sum(values[end - size : end]) / size >= sign * goal:
            return end - 1
    return None


def _tokens(rows: Sequence[Mapping[str, float]]) -> float | None:
    return next(reversed(finite(rows, "progress/tokens")), None)


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    keys = {key: None for one in settings for key in one if key not in _ITSELF}
    values = {key: [one.get(key) for one in settings] for key in keys}
    return {key: found for key, found in values.items() if any(value != found[0] for value in found)}

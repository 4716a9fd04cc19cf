"""The last lines of `rlinf train`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlinf_cli.errors import did_you_mean
from rlinf_cli.runs.naming import CHECKPOINTS, LATEST
from rlinf_cli.runs.progress import label_line
from rlinf_cli.runs.sparkline import compact

_LAST_SHARE = 0.1


def final(values: Sequence[float]) -> float:
    """Where a metric ended: its mean over the last tenth of the steps; NaN without any."""
    last = values[-window(len(values)) :]
    return sum(last) / len(last) if last else math.nan


def window(count: int) -> int:
    """How many of so many steps the last tenth is; at least one."""
    return max(1, round(count * _LAST_SHARE))


def finite(rows: Sequence[Mapping[str, float]], metric: str) -> list[float]:
    """The values of a metric, without the steps that did not have it."""
    return [value for row in rows if math.isfinite(value := row.get(metric, math.nan))]


def measured(rows: Sequence[Mapping[str, float]]) -> tuple[str, list[float]]:
    """What tells how well a run does, and its values: the reward or, without any, the loss."""
    rewards = finite(rows, "reward/mean")
    return ("reward", rewards) if rewards else ("loss", finite(rows, "actor/loss"))


def summary_lines(run: Path, rows: Sequence[Mapping[str, float]], seconds: float, first_step: int = 1,
                  best: str = "", warning: str = "") -> list[str]:
    """What was reached and how to go on, a line each.

    `rows`: all lines of the run's metrics (`read_metrics`) · `seconds`: wall time of this attempt, which began with
    step `first_step` · `best`: the metric of `checkpoint.best` · `warning`: why nothing was
    learned. The final reward is that of `final`.
    """
    done = [row for row in rows if row["step"] >= first_step]
    facts = [f"{len(done)} step{'' if len(done) == 1 else 's'} in {duration(seconds)}"]
    measure, values = measured(rows)
    if values:
        facts.append(f"{measure} {final(values):.2f} (first {values[0]:.2f})")
    rate = tokens_per_s(done)
    if rate is not None:
        facts.append(f"{compact(rate)} tokens/s")
    warnings = [label_line("warning", warning)] if warning else []
    return [label_line("done", " · ".join(facts)), label_line("run", str(run)), *warnings, *_without_best(rows, best),
            *next_lines(run, rows)]


def _without_best(rows: Sequence[Mapping[str, float]], best: str) -> list[str]:
    metric = best.removeprefix("-")
    if not metric or finite(rows, metric):
        return []
    known = {name for row in rows for name in row if "/" in name}
    return [label_line("warning", f"no step had the metric of checkpoint.best={best}, so no checkpoint is the best"
                                  f"{did_you_mean(metric, known)}")]


def next_lines(run: Path, rows: Sequence[Mapping[str, float]]) -> list[str]:
    """The commands to go on with from the last checkpoint; none before there is one."""
    if not (run / CHECKPOINTS / LATEST).exists():
        return []
    name = shlex.quote(str(run))
    steps = 2 * int(rows[-1]["step"]) if rows else 1
    return [label_line("next", f"rlinf eval {name}"),
            label_line("", f"rlinf export {name} model/"),
            label_line("", f"rlinf train --resume {name} --steps {steps}")]


def tokens_per_s(rows: Sequence[Mapping[str, float]]) -> float | None:
    """Over the whole time of these steps; None when it was not measured."""
    pairs = [(row.get("throughput/tokens_per_s", math.nan), row.get("timing/step_s", math.nan)) for row in rows]
    known = [(rate, seconds) for rate, seconds in pairs if math.isfinite(rate) and math.isfinite(seconds)]
    time = sum(seconds for _, seconds in known)
    return sum(rate * seconds for rate, seconds in known) / time if time > 0 else None


def duration(seconds: float) -> str:
    """21 s, 4 min 10 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"

"""The last lines of `rlinf train`."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlinf_cli.runs.checkpoints import LATEST
from rlinf_cli.runs.naming import CHECKPOINTS
from rlinf_cli.runs.progress import label_line
from rlinf_cli.runs.sparkline import compact

_LAST_SHARE = 0.1


def summary_lines(run: Path, rows: Sequence[Mapping[str, float]], seconds: float, first_step: int = 1) -> list[str]:
    """What was reached and how to go on, a line each.

    `rows`: all lines of the run's metrics (`read_metrics`) · `seconds`: wall time of this attempt, which began with
    step `first_step`. The final reward is the mean over the last tenth of all steps.
    """
    done = [row for row in rows if row["step"] >= first_step]
    facts = [f"{len(done)} step{'' if len(done) == 1 else 's'} in {_duration(seconds)}"]
    rewards = [row["reward/mean"] for row in rows if math.isfinite(row.get("reward/mean", math.nan))]
    if rewards:
        last = rewards[-max(1, round(len(rewards) * _LAST_SHARE)) :]
        facts.append(f"reward {sum(last) / len(last):.2f} (first {rewards[0]:.2f})")
    rate = _tokens_per_s(done)
    if rate is not None:
        facts.append(f"{compact(rate)} tokens/s")
    return [label_line("done", " · ".join(facts)), label_line("run", str(run)), *_next(run, rows)]


def _next(run: Path, rows: Sequence[Mapping[str, float]]) -> list[str]:
    if not (run / CHECKPOINTS / LATEST).exists():
        return []
    name = shlex.quote(str(run))
    steps = 2 * int(rows[-1]["step"]) if rows else 1
    return [label_line("next", f"rlinf export {name} model/"),
            label_line("", f"rlinf train --resume {name} --steps {steps}")]


def _tokens_per_s(rows: Sequence[Mapping[str, float]]) -> float | None:
    pairs = [(row.get("throughput/tokens_per_s", math.nan), row.get("timing/step_s", math.nan)) for row in rows]
    known = [(rate, seconds) for rate, seconds in pairs if math.isfinite(rate) and math.isfinite(seconds)]
    time = sum(seconds for _, seconds in known)
    return sum(rate * seconds for rate, seconds in known) / time if time > 0 else None


def _duration(seconds: float) -> str:
    """21 s, 4 min 10 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole // 60 % 60} min"

"""What a run shows while it goes: a live picture on a terminal, otherwise a line now and then. All on stderr."""

from __future__ import annotations

import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from rlinf_cli.runs.sparkline import clock, compact

if TYPE_CHECKING:
    from rlinf_cli.rl.trajectory import Sample

LABEL_WIDTH = 11
_PLAIN_EVERY_S = 10.0
_PLAIN_LINES = 10
_WINDOW = 20


class Progress(ABC):
    """Used in a `with` statement; all calls but `message` come from one thread, and none waits for the terminal's refresh."""

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()

    @abstractmethod
    def message(self, label: str, text: str) -> None:
        """A line that stays: `run        runs/grpo-digits`. `label` has at most ten characters; '' continues the one
        above."""

    @abstractmethod
    def phase(self, text: str) -> None:
        """What is going on until the next phase or step, e.g. `starting Ray`."""

    @abstractmethod
    def step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Sample] = ()) -> None:
        """Step number `step` (from 1) has ended with these metrics; the last of `samples` are shown."""

    @abstractmethod
    def close(self) -> None: ...


def progress(total: int, first_step: int, stream: TextIO, terminal: bool | None = None) -> Progress:
    """Progress of steps `first_step` to `total` (from 1).

    `terminal` None finds out: a live picture needs a terminal that can move its cursor, and a person who looks at it
    (not CI).
    """
    if terminal is None:
        terminal = is_interactive(stream, os.environ)
    if not terminal:
        return PlainProgress(total, stream)
    from rlinf_cli.runs.live import LiveProgress

    return LiveProgress(total, first_step, stream)


def is_interactive(stream: TextIO, environment: Mapping[str, str]) -> bool:
    plain = environment.get("TERM", "") in ("", "dumb", "unknown")
    watched = environment.get("CI", "") in ("", "0", "false")
    return watched and not plain and stream.isatty()


class Pace:
    """Seconds that the last steps took, and what is left at that pace."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._seconds: deque[float] = deque(maxlen=_WINDOW)
        self._last: float | None = None

    def tick(self, metrics: Mapping[str, float]) -> None:
        """A step has ended. Checkpoints between steps count; of the first, only the step's own time is known."""
        now = time.monotonic()
        seconds = metrics.get("timing/step_s", math.nan) if self._last is None else now - self._last
        if math.isfinite(seconds):
            self._seconds.append(seconds)
        self._last = now

    def left(self, step: int) -> float | None:
        """Seconds from the end of step `step` to the end of the run; None when nothing is known yet."""
        if not self._seconds:
            return None
        return (self._total - step) * sum(self._seconds) / len(self._seconds)


def printable(text: str) -> str:
    """One line without control characters: a model may write anything."""
    return "".join(c if c.isprintable() else " " for c in text)


def label_line(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{printable(text)}".rstrip()


class PlainProgress(Progress):
    """Lines for a log file: the first and the last step, and of the others one every few seconds or every tenth."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total, self._stream = total, stream
        self._pace = Pace(total)
        self._shown_at: float | None = None
        self._held: str | None = None

    def message(self, label: str, text: str) -> None:
        self._show(label_line(label, text))

    def phase(self, text: str) -> None:
        self._show(f"  {printable(text)}")

    def step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Sample] = ()) -> None:
        self._pace.tick(metrics)
        line = step_line(step, self._total, metrics, self._pace.left(step))
        if self._is_due(step, bool(eval_means(metrics))):
            self._shown_at, self._held = time.monotonic(), None
            self._show(line)
        else:
            self._held = line

    def close(self) -> None:
        """Show the last step if it was not."""
        if self._held is not None:
            self._show(self._held)
            self._held = None

    def _is_due(self, step: int, is_evaluated: bool) -> bool:
        if self._shown_at is None or is_evaluated or step >= self._total or step % max(1, self._total // _PLAIN_LINES) == 0:
            return True
        return time.monotonic() - self._shown_at >= _PLAIN_EVERY_S

    def _show(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def eval_means(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """`digits mean@4`, and its value, of each task that was evaluated."""
    found = ((re.fullmatch(r"eval/([^/]+)/(mean@\d+)", name), value) for name, value in metrics.items())
    return [(f"{name[1]} {name[2]}", value) for name, value in found if name is not None]


def step_line(step: int, total: int, metrics: Mapping[str, float], left: float | None) -> str:
    """`  step 41/100  reward 0.63  tokens/s 14.9k  step 0.12 s  eta 0:00:09`, without what is not known."""
    parts = [f"step {step}/{total}"]
    reward, tokens, seconds = (metrics.get(name, math.nan) for name in
                               ("reward/mean", "throughput/tokens_per_s", "timing/step_s"))
    if "reward/mean" in metrics:
        parts.append(f"reward {reward:.2f}" if math.isfinite(reward) else "reward -")
    elif "actor/loss" in metrics:
        parts.append(f"loss {metrics['actor/loss']:.3f}")
    parts += [f"{name} {value:.2f}" for name, value in eval_means(metrics)]
    if "env/success" in metrics:
        parts.append(f"success {metrics['env/success']:.2f}")
    if math.isfinite(tokens):
        parts.append(f"tokens/s {compact(tokens)}")
    if "throughput/env_steps_per_s" in metrics:
        parts.append(f"env steps/s {compact(metrics['throughput/env_steps_per_s'])}")
    if math.isfinite(seconds):
        parts.append(f"step {compact(seconds)} s")
    if left is not None:
        parts.append(f"eta {clock(left)}")
    return "  " + "  ".join(parts)

"""The live picture on a terminal."""

from __future__ import annotations

import math
import sys
import textwrap
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rlinf_cli.runs.frame import Shown, View, draw, draw_phase, time_shares
from rlinf_cli.runs.progress import LABEL_WIDTH, Pace, Progress, eval_means, printable

if TYPE_CHECKING:
    from rlinf_cli.rl.trajectory import Sample

_REFRESHES_PER_S = 8
_REWARDS = 24
_SAMPLES = 2
_SMOOTHED_OVER = 8
_LONGEST_TEXT = 2000


class LiveProgress(Progress):
    """Redrawn a few times a second by a thread of its own; a step only leaves its numbers for it."""

    def __init__(self, total: int, first_step: int, stream: TextIO) -> None:
        self._total, self._first = total, first_step
        self._console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        self._ascii = not self._console.encoding.startswith("utf")
        self._pace = Pace(total)
        self._rewards: deque[float] = deque(maxlen=_REWARDS)
        self._recent: deque[Mapping[str, float]] = deque(maxlen=_SMOOTHED_OVER)
        self._evaluated: dict[str, float] = {}
        self._view: View | None = None
        self._phase: tuple[str, float] | None = None
        # prints of other libraries to stderr go above the picture instead of through it
        self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=_REFRESHES_PER_S,
                          redirect_stdout=False, redirect_stderr=stream is sys.stderr)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def message(self, label: str, text: str) -> None:
        room = max(20, self._console.width - LABEL_WIDTH)
        lines = textwrap.wrap(printable(text), room, break_long_words=False, break_on_hyphens=False) or [""]
        styled = Text.assemble((f"{label:<{LABEL_WIDTH}}", "bold"), f"\n{'':<{LABEL_WIDTH}}".join(lines))
        self._console.print(styled, soft_wrap=True)

    def phase(self, text: str) -> None:
        self._phase = (text, time.monotonic())

    def step(self, step: int, metrics: Mapping[str, float], samples: Sequence[Sample] = ()) -> None:
        self._pace.tick(metrics)
        measure = "reward" if "reward/mean" in metrics else "loss"
        name = {"reward": "reward/mean", "loss": "actor/loss"}[measure]
        if name in metrics:
            self._rewards.append(metrics[name])
        self._evaluated |= dict(eval_means(metrics))
        self._recent.append({name: value for name, value in metrics.items() if name.startswith("timing/")})
        shown = tuple(Shown(sample.prompt[-_LONGEST_TEXT:], sample.response[:_LONGEST_TEXT],
                            sample.reward if measure == "reward" else None)
                      for sample in samples[-_SAMPLES:])
        before = self._view.samples if self._view else ()
        self._view = View(step, self._total, self._pace.left(step), tuple(self._rewards),
                          metrics.get("throughput/tokens_per_s", math.nan), time_shares(_means(self._recent)),
                          shown or before, tuple(self._evaluated.items()), measure)
        self._phase = None

    def close(self) -> None:
        """Leave the last picture standing; nothing of the start-up, if no step came."""
        self._phase = None
        self._live.transient = self._view is None
        self._live.stop()

    def _draw(self) -> Group:
        view, phase, width = self._view, self._phase, self._console.width
        lines = [] if view is None else draw(view, width, self._ascii)
        if phase is not None:
            lines.append(draw_phase(phase[0], time.monotonic() - phase[1], self._ascii))
        return Group(*lines)


def _means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: sum(row.get(name, 0.0) for row in rows) / len(rows) for name in names}

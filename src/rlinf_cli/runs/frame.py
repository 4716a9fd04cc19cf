"""The live picture: what is known of a run, drawn for a width. Pure: no clock, no terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from rlinf_cli.runs.progress import printable
from rlinf_cli.runs.sparkline import bar, clock, compact, sparkline

_INDENT = "  "
_GAP = "   "
_SHORTEST_BAR, _LONGEST_BAR = 10, 30
_TASKS = 2
_BUSY_BARS = (20, 16, 12, 8)
_ROLE_STYLES = ("cyan", "magenta", "blue", "green")
_WAIT_STYLES = {"sync": "yellow", "switch": "yellow", "wait": "red", "idle": "bright_black"}
_GROUPS = {"sync": "sync", "onload": "switch", "offload": "switch", "wait_data": "wait", "wait_space": "wait",
           "wait_lock": "wait", "idle": "idle"}
_NO_SHARE = ("timing/step_s", "timing/eval_s")
_SPINNER, _ASCII_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "|/-\\"


@dataclass(frozen=True)
class Shown:
    """A sample as it is shown."""

    prompt: str
    response: str
    reward: float | None
    """None where there are no rewards."""


@dataclass(frozen=True)
class View:
    """Everything that one picture shows."""

    step: int
    total: int
    left: float | None
    """Seconds to the end."""
    rewards: tuple[float, ...]
    tokens_per_s: float
    shares: Mapping[str, float]
    """Of the step's time, by role and kind of waiting (`time_shares`)."""
    samples: tuple[Shown, ...]
    evaluated: tuple[tuple[str, float], ...] = ()
    """`digits mean@4`, and its latest value."""
    measure: str = "reward"
    """What `rewards` are: `reward`, or `loss` where there are no rewards."""


def time_shares(metrics: Mapping[str, float]) -> dict[str, float]:
    """Share of the step's time of each role, then of `sync`, `switch` (on- and offload), `wait` and `idle`, where they took
    any."""
    total = metrics.get("timing/step_s", math.nan)
    times = {name[len("timing/") : -2]: value for name, value in metrics.items()
             if name.startswith("timing/") and name.endswith("_s") and name not in _NO_SHARE and math.isfinite(value)}
    if not total > 0:
        return {}
    shares = {role: seconds / total for role, seconds in times.items() if role not in _GROUPS}
    for kind in dict.fromkeys(_GROUPS.values()):
        found = sum(seconds for name, seconds in times.items() if _GROUPS.get(name) == kind)
        if found:
            shares[kind] = found / total
    return shares


def draw(view: View, width: int, ascii_only: bool = False) -> list[Text]:
    """The lines of the picture, none wider than `width` columns."""
    facts = _facts(view, ascii_only)
    beside = sum(len(_GAP) + fact.cell_len for fact in facts)
    step = _step_line(view, width - beside, ascii_only)
    if step.cell_len + beside <= width:
        lines = [Text(_GAP).join([step, *facts])]
    else:
        lines = [_step_line(view, width, ascii_only), *_flow(facts, width)]
    lines += _flow(_busy(view.shares, width, ascii_only), width)
    lines += _samples(view.samples, width, ascii_only)
    for line in lines:
        line.truncate(width)
    return lines


def draw_phase(text: str, seconds: float, ascii_only: bool = False) -> Text:
    """A turning sign, what is going on, and since when."""
    signs = _ASCII_SPINNER if ascii_only else _SPINNER
    since = f"  {seconds:.0f} s" if seconds >= 1 else ""
    return Text.assemble(_INDENT, (signs[int(seconds * 8) % len(signs)], "cyan"), f" {printable(text)}", (since, "dim"))


def _step_line(view: View, width: int, ascii_only: bool) -> Text:
    share = min(view.step / view.total, 1.0)
    head = f"{_INDENT}step {view.step}/{view.total}  "
    tail = f"  {math.floor(share * 100)} %"
    if view.left is not None and share < 1:
        tail += f"  {clock(view.left)} left"
    room = max(_SHORTEST_BAR, min(_LONGEST_BAR, width - len(head) - len(tail)))
    return Text.assemble((head, "bold"), (_progress_bar(share, room, ascii_only), "green"), tail)


def _progress_bar(share: float, width: int, ascii_only: bool) -> str:
    full, end = ("=", ">") if ascii_only else ("━", "╸")
    done = int(share * width)
    return (full * done + (end if done < width else "")).ljust(width)


def _facts(view: View, ascii_only: bool) -> list[Text]:
    facts = []
    if view.rewards:
        now = view.rewards[-1]
        text = f"{now:.2f} " if math.isfinite(now) else "- "
        curve = sparkline(view.rewards, ascii_only)
        facts.append(Text.assemble((f"{view.measure} ", "dim"), (text, "bold"), (curve, "green")))
    facts += [Text.assemble((f"{name} ", "dim"), (f"{value:.2f}", "bold")) for name, value in view.evaluated[:_TASKS]]
    if math.isfinite(view.tokens_per_s):
        facts.append(Text.assemble(("tokens/s ", "dim"), (compact(view.tokens_per_s), "bold")))
    return facts


def _busy(shares: Mapping[str, float], width: int, ascii_only: bool) -> list[Text]:
    """Names, bars and percentages, with the longest bars for which one line is enough."""
    for longest in _BUSY_BARS:
        items = [Text.assemble((f"{name} ", "dim"), (bar(share, longest, ascii_only), style), f" {share * 100:.0f} %")
                 for (name, share), style in zip(shares.items(), _styles(shares))]
        if sum(len(_GAP) + item.cell_len for item in items) <= width:
            break
    return items


def _styles(names: Iterable[str]) -> list[str]:
    roles = cycle(_ROLE_STYLES)
    return [_WAIT_STYLES.get(name) or next(roles) for name in names]


def _flow(items: Iterable[Text], width: int) -> list[Text]:
    """Items side by side, on as many lines as they need."""
    lines: list[Text] = []
    for item in items:
        if lines and lines[-1].cell_len + len(_GAP) + item.cell_len <= width:
            lines[-1].append(_GAP).append_text(item)
        else:
            lines.append(Text(_INDENT).append_text(item))
    return lines


def _samples(samples: Sequence[Shown], width: int, ascii_only: bool) -> list[Text]:
    side_by_side = width >= 100 and len(samples) > 1
    room = (width - len(_INDENT)) // len(samples) - len(_GAP) if side_by_side else width - len(_INDENT)
    return _flow((_sample(sample, room, side_by_side, ascii_only) for sample in samples), width)


def _sample(sample: Shown, room: int, pad: bool, ascii_only: bool) -> Text:
    """`prompt d47=  answer 7  reward 1.00`: of a long prompt its end, of a long answer its beginning."""
    reward = _reward(sample.reward)
    prompt, answer = _one_line(sample.prompt), _one_line(sample.response)
    free = max(8, room - len("prompt   answer ") - reward.cell_len)
    answer = _clip(answer, max(free // 2, free - cell_len(prompt)), ascii_only)
    prompt = _clip_left(prompt, free - cell_len(answer), ascii_only)
    line = Text.assemble(("prompt ", "dim"), prompt, ("  answer ", "dim"), answer).append_text(reward)
    if pad:
        line.pad_right(max(0, room - line.cell_len))
    return line


def _reward(value: float | None) -> Text:
    if value is None:
        return Text()
    return Text.assemble(("  reward ", "dim"), (f"{value:.2f}" if math.isfinite(value) else "-", "green" if value > 0 else ""))


def _one_line(text: str) -> str:
    return " ".join(printable(text).split())


def _clip(text: str, width: int, ascii_only: bool) -> str:
    if cell_len(text) <= width:
        return text
    mark = "~" if ascii_only else "…"
    return set_cell_size(text, max(0, width - 1)).rstrip() + mark


def _clip_left(text: str, width: int, ascii_only: bool) -> str:
    return _clip(text[::-1], width, ascii_only)[::-1]

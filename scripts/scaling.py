"""Modes from 8 to 1024 devices by analytic costs, beside what the paper reports: writes the table of docs/scaling.md.

    python scripts/scaling.py            # writes it, in about two minutes
    python scripts/scaling.py --check    # writes nothing; exit code 1 where the page is not what it would write

Nothing is measured: costs are rooflines of H100s, lengths are assumed, and iterations are simulated.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from rlinf_cli.errors import CapacityError
from rlinf_cli.scheduling.analytic import GRPO, GRPO_WITHOUT_INFERENCE, PPO, Part, alternatives, assumed_lengths
from rlinf_cli.scheduling.embodied import LIBERO, MANISKILL, Environments, embodied_problem
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.roofline import Work
from rlinf_cli.scheduling.search import search
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide, Tree, text

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- scripts/scaling.py: begin -->", "<!-- scripts/scaling.py: end -->"
HARDWARE = "h100"
COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024)
INF = float("inf")


@dataclass(frozen=True)
class Setting:
    """Of language models. `paper`: the mode that it reports as best, and its figures."""

    title: str
    model: str
    parts: Sequence[Part]
    samples: int
    group: int
    max_new_tokens: int
    paper: str


LONG_GRPO = "64 to 256 GPUs: temporal, 1.10 to 1.58 times the baseline"
LONG_PPO = "spatial 4:1:1:1:1, 17.7 to 44.8 % over temporal"
SETTINGS = (
    Setting("GRPO 1.5B", "qwen2.5-1.5b", GRPO, 8192, 16, 27648, LONG_GRPO),
    Setting("GRPO 7B", "qwen2.5-7b", GRPO, 8192, 16, 27648, f"{LONG_GRPO}; spatial loses by 44 to 69 % to it"),
    Setting("GRPO 32B", "qwen2.5-32b", GRPO, 8192, 16, 27648, LONG_GRPO),
    Setting("PPO 1.5B", "qwen2.5-1.5b", PPO, 512, 1, 11264, LONG_PPO),
    Setting("PPO 7B", "qwen2.5-7b", PPO, 512, 1, 11264, LONG_PPO),
    Setting("PPO 14B", "qwen2.5-14b", PPO, 512, 1, 11264, LONG_PPO),
    Setting("GRPO 30B-A3B (MoE)", "qwen3-30b-a3b", GRPO_WITHOUT_INFERENCE, 1536, 16, 19456,
            "spatial 1:1 at 32 and 64 GPUs, 31 and 7 % over the baseline; temporal at 128"),
)
ROBOTS = ((MANISKILL, "8 to 32 GPUs: hybrid, 52 to 69 % over temporal and 61 to 87 % over spatial"),
          (LIBERO, "8 to 32 GPUs: temporal"))


@dataclass(frozen=True)
class Row:
    """Seconds of an iteration in each mode; inf where there is none."""

    devices: int
    temporal: float
    spatial: float
    best: float
    plan: str


def join(kind: type[InTurn] | type[SideBySide], parts: Sequence[Tree]) -> Tree:
    return reduce(lambda first, second: kind(first, second), parts)


def row(problems: Sequence[Problem]) -> Row:
    """The best of each mode over alternatives of the same setting."""
    seconds: dict[str, float] = {}
    best, name = INF, ""
    for problem in problems:
        found = search(problem)
        for plan in (found.best, *(other.plan for other in found.others)):
            if plan.prediction:
                seconds[plan.mode] = min(seconds.get(plan.mode, INF), plan.prediction.step_s)
        assert found.best.prediction
        if found.best.prediction.step_s < best:
            best, name = found.best.prediction.step_s, text(found.best.tree)
    return Row(problems[0].devices, seconds.get("temporal", INF), seconds.get("spatial", INF), best, name)


def language_row(setting: Setting, devices: int) -> Row | None:
    """None where the model does not fit."""
    work = Work(assumed_lengths(setting.samples, setting.max_new_tokens), setting.group)
    try:
        problems = alternatives(HARDWARE, setting.model, setting.parts, devices, work)
    except CapacityError:
        return None
    return row(problems)


def robot_row(environments: Environments, devices: int) -> Row:
    """Temporal: everything in turn · spatial: three parts · hybrid: simulator and policy apart, training on all."""
    def seconds(kind: type[InTurn] | type[SideBySide], problem: Problem, cycle: int) -> float:
        training = devices if kind is InTurn else devices - cycle
        tree = join(kind, [Leaf("interaction", cycle), Leaf("train", training)])
        return predict(problem, Plan(tree)).step_s

    shared, split = (embodied_problem(HARDWARE, environments, devices, inside) for inside in ("shared", "split"))
    temporal, hybrid = seconds(InTurn, shared, devices), seconds(InTurn, split, devices)
    spatial = min(seconds(SideBySide, split, cycle) for cycle in split.stages[0].counts if cycle < devices)
    best, plan = min((temporal, "simulator, policy, train on all"), (hybrid, "simulator | policy, then train on all"),
                     (spatial, "simulator | policy | train"))
    return Row(devices, temporal, spatial, best, plan)


def gain(slower: float, faster: float) -> str:
    return "–" if slower == INF else f"{(slower / faster - 1) * 100:+.0f} %"


def section(title: str, paper: str, rows: Sequence[Row]) -> Iterator[str]:
    yield from (f"### {title}", "", f"The paper: {paper}.", "")
    yield "| devices | temporal s | best spatial s | best s | over temporal | over spatial | speed-up | best plan |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in rows:
        speed = rows[0].best / one.best
        cells = (one.devices, figure(one.temporal), figure(one.spatial), figure(one.best), gain(one.temporal, one.best),
                 gain(one.spatial, one.best), f"{speed:.2f}", one.plan.replace("|", "\\|"))
        yield f"| {' | '.join(map(str, cells))} |"
    yield ""


def figure(seconds: float) -> str:
    return "–" if seconds == INF else f"{seconds:.1f}"


def report() -> Iterator[str]:
    for setting in SETTINGS:
        rows = [language_row(setting, devices) for devices in COUNTS]
        yield from section(setting.title, setting.paper, [one for one in rows if one])
    for environments, paper in ROBOTS:
        yield from section(f"{environments.name}, OpenVLA", paper, [robot_row(environments, count) for count in COUNTS[:-2]])


def written(page: str, lines: Sequence[str]) -> str:
    """The page with the lines between its markers."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return "\n".join([head + BEGIN, "", *lines]) + END + tail


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, say whether the page is up to date")
    options = parser.parse_args(arguments)
    before = PAGE.read_text(encoding="utf-8")
    after = written(before, list(report()))
    if options.check:
        return int(after != before)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

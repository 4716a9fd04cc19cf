"""Modes from 8 to 1024 devices by analytic costs, beside what the paper reports: writes the table of docs/scaling.md.

    python scripts/scaling.py            # writes it, in a few minutes
    python scripts/scaling.py --check    # writes nothing; exit code 1 where the page is not what it would write

Nothing is measured: costs are rooflines of H100s, lengths are assumed, and iterations are simulated.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np

from rlinf_cli.errors import CapacityError
from rlinf_cli.scheduling.analytic import GRPO, GRPO_WITHOUT_INFERENCE, PPO, Part, analytic_problem, assumed_lengths
from rlinf_cli.scheduling.embodied import LIBERO, MANISKILL, Environments, embodied_problem
from rlinf_cli.scheduling.lengths import Ints
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Curve, Decoding, Problem
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


def row(problem: Problem) -> Row:
    """The best of each mode."""
    seconds: dict[str, float] = {}
    found = search(problem)
    for plan in (found.best, *(other.plan for other in found.others)):
        if plan.prediction:
            seconds[plan.mode] = min(seconds.get(plan.mode, INF), plan.prediction.step_s)
    assert found.best.prediction
    return Row(problem.devices, seconds.get("temporal", INF), seconds.get("spatial", INF), found.best.prediction.step_s,
               named(found.best, problem))


def named(plan: Plan, problem: Problem) -> str:
    """The tree, with the devices of a rank or replica behind those of a stage: `rollout 32/8`."""
    units = {stage.name: stage.unit for stage in problem.spread(plan.units).stages}
    return re.sub(r"(\w+) (\d+)", lambda found: f"{found[1]} {found[2]}/{units[found[1]]}", text(plan.tree))


def language_row(setting: Setting, devices: int) -> Row | None:
    """None where the model does not fit."""
    try:
        return row(problem_of(setting, devices, assumed_lengths(setting.samples, setting.max_new_tokens)))
    except CapacityError:
        return None


def problem_of(setting: Setting, devices: int, lengths: Ints) -> Problem:
    return analytic_problem(HARDWARE, setting.model, setting.parts, devices, Work(lengths, setting.group))


# ---- what decides between spatial and temporal ----


MIXTURE = SETTINGS[-1]
CASES = ((MIXTURE, 32), (MIXTURE, 64), (MIXTURE, 128), (SETTINGS[0], 128), (SETTINGS[1], 128))
REFERENCE = Decoding(Curve((0.0, 1.0), (0.012, 0.0121)), 256, 2)
"""Decode steps of the reference workload moe_30b_a3b, with 2 devices a replica."""


def alike(lengths: Ints, group: int, share: float) -> Ints:
    """The same lengths in another order: so much of the variance of the logarithm is the prompt's, which its samples have in
    common."""
    draw = np.random.default_rng(0)
    prompts = np.repeat(draw.standard_normal(len(lengths) // group), group)
    scores = np.sqrt(share) * prompts + np.sqrt(1 - share) * draw.standard_normal(len(lengths))
    found = np.empty_like(lengths)
    found[np.argsort(scores, kind="stable")] = np.sort(lengths)
    return found


def by_sample(problem: Problem) -> Problem:
    """Nothing waits for the other samples of a prompt."""
    return replace(problem, group=1, stages=tuple(replace(stage, least_chunk=1) for stage in problem.stages))


def with_reference_steps(problem: Problem) -> Problem:
    return replace(problem, stages=(replace(problem.stages[0], cost=REFERENCE, spreads=()), *problem.stages[1:]))


def causes() -> Iterator[str]:
    """By how much spatial is slower or faster than temporal, under other assumptions than those of the table."""
    yield from ("### What decides between spatial and temporal", "", "Best spatial beside temporal.", "")
    yield "| | " + " | ".join(f"{setting.title.replace('GRPO 30B-A3B (MoE)', 'MoE')}, {count}" for setting, count in CASES) + " |"
    yield "|---" * (len(CASES) + 1) + "|"
    lengths = [assumed_lengths(setting.samples, setting.max_new_tokens) for setting, _ in CASES]
    given = [problem_of(*case, tokens) for case, tokens in zip(CASES, lengths, strict=True)]
    half, same = ([problem_of(*case, alike(tokens, case[0].group, share)) for case, tokens in zip(CASES, lengths, strict=True)]
                  for share in (0.5, 1.0))
    single = list(map(by_sample, given))
    yield causes_row("as in the tables: lengths of a prompt's responses are independent", given)
    yield causes_row("half of the variance is the prompt's", half)
    yield causes_row("all of it is", same)
    yield causes_row("independent, but each sample is trained without its group", single)
    yield causes_row("the same, with decode steps of the reference workload", list(map(with_reference_steps, single[:3])))
    yield ""


def causes_row(name: str, problems: Sequence[Problem]) -> str:
    shares = [f"{(found.spatial / found.temporal - 1) * 100:+.0f} %" for found in map(row, problems)]
    return " | ".join([f"| {name}", *shares, *["–"] * (len(CASES) - len(shares))]) + " |"


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
    yield from causes()
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

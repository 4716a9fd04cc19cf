"""Predicted against real: do plans take what the planner says, and does it choose the best one?

    python scripts/bench/prediction.py [--cases constant lognormal ... model]

EMULATION for all cases but `model`: engine and trainer sleep for declared times (see `emulation/`), everything else is real:
Ray, processes, channels, locks, weights, the staleness gate. The planner is not told the declared times: each case is measured
with `rlinf profile`, planned with that file, and every placement of a sweep by hand is run with `rlinf train`, besides the plan
that `rlinf plan` writes where that is none of them. Three devices of 8 slots, 48 samples a step, a response of mean length takes
0.3 s. Decided before anything was measured:

`constant`: all responses are alike; training takes as long as decoding with all slots · `lognormal`: sigma 1, and a decode step
takes twice as long with all slots as with one · `pareto`: exponent 1.5, and generation may be 4 steps ahead · `training`:
lognormal, training takes three times as long · `reference`: lognormal, and a third stage that needs devices, which takes half as
long as training · `switches`: constant, and roles need 0.3 s to make room and 0.3 s to come back.
`model`: the tiny model of the embedded default and its digits, on two devices; nothing is emulated.

A prediction costs the lengths that the steps had (`simulate.replay`), so that it is the costs that are judged, not the luck of
the draw; those of the emulation are a function of the prompt, and so the same in each placement. Errors with the lengths that
were profiled, as `rlinf plan` prints them, are in `raw` (`as_planned`). Steps after a warm-up count, but for those that were
slower than the run's median, relative to what was predicted, by more than 15 %: others use the machine (`stalled` in `raw`). Of
the real model, which computes, it is the median of the steps that counts.

Ratios: `sleep_error`: largest error of a placement · `model_error` · `regret`: the chosen plan's seconds over those of the best
of the sweep, less 1, at worst · `order`: share of the pairs of placements whose measured seconds differ by more than 5 % that
are predicted in the right order.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from operator import truediv
from pathlib import Path

import numpy as np

from rlinf_cli.config.load import resolve
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.runs.planned import plan_run
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Problem
from rlinf_cli.scheduling.simulate import predict, replay
from rlinf_cli.scheduling.tree import text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "emulation"))
from rlinf_emulation.lengths import TOKENS, length, tokens  # noqa: E402

UNIT, SLOTS, SAMPLES = 0.3, 8, 48
WARM, STEPS = 3, 10
REAL_WARM, REAL_STEPS = 10, 40
APART = 0.05
"""Placements whose seconds differ by less have no order."""
STALL = 0.15
BUDGET_S = 90

TEMPORAL = {"temporal": ["placement=temporal"]}
TWO_STAGES = TEMPORAL | {
    "spatial 2|1": ["placement=rollout+reward:0-1,actor:2"],
    "spatial 1|2": ["placement=rollout+reward:0,actor:1-2"],
    "hybrid 3,2": ["placement=rollout+reward:0-2,actor:1-2"],
    "hybrid 3,1": ["placement=rollout+reward:0-2,actor:2"],
    "hybrid 2,3": ["placement=rollout+reward:0-1,actor:0-2"],
    "hybrid 1,3": ["placement=rollout+reward:0,actor:0-2"],
}
THREE_STAGES = TEMPORAL | {
    "spatial 1|1|1": ["placement=rollout+reward:0,reference:1,actor:2"],
    "hybrid 2|(1,1)": ["placement=rollout+reward:0-1,reference+actor:2"],
    "hybrid 1|(2,2)": ["placement=rollout+reward:0,reference+actor:1-2"],
    "hybrid (2,2)|1": ["placement=rollout+reward+reference:0-1,actor:2"],
    "hybrid (1,1)|2": ["placement=rollout+reward+reference:0,actor:1-2"],
    "hybrid (2|1),3": ["placement=rollout+reward:0-1,reference:2,actor:0-2"],
    "hybrid (1|2),3": ["placement=rollout+reward:0,reference:1-2,actor:0-2"],
    "hybrid 3,(1|2)": ["placement=rollout+reward:0-2,reference:0,actor:1-2"],
    "hybrid 3,(2|1)": ["placement=rollout+reward:0-2,reference:0-1,actor:2"],
}
REAL = TEMPORAL | {
    "spatial 1|1": ["placement=rollout+reward:0,actor:1"],
    "asynchronous 1|1": ["placement=rollout+reward:0,actor:1", "rollout.staleness=4"],
}
EMULATED = ["algorithm.name=emulated", "engine.name=emulated", "trainer.name=emulated", "cluster.devices=cpu:3",
            f"rollout.prompts={SAMPLES}", "rollout.group_size=1", f"rollout.max_new_tokens={20 * TOKENS}",
            f"engine.slots={SLOTS}", f"engine.unit_s={UNIT}", "algorithm.minibatches=1"]


@dataclass(frozen=True)
class Case:
    """A workload, and the placements that are tried."""

    name: str
    lengths: str = "lognormal"
    """Empty: of a real model."""
    training: float = 1.0
    """Seconds to train a response, relative to decoding it with all slots."""
    staleness: int = 0
    more: Sequence[str] = ()
    placements: Mapping[str, Sequence[str]] = field(default_factory=lambda: TWO_STAGES)

    @property
    def keys(self) -> list[str]:
        """The configuration but for the placement."""
        if not self.lengths:
            return ["algorithm.name=grpo", "cluster.devices=cpu:2"]
        return [*EMULATED, f"engine.lengths={self.lengths}", f"trainer.unit_s={UNIT / SLOTS * self.training}",
                f"rollout.staleness={self.staleness}", *self.more]


CASES = {case.name: case for case in [
    Case("constant", "constant"),
    Case("lognormal", more=["engine.crowding=1"]),
    Case("pareto", "pareto", staleness=4),
    Case("training", training=3.0),
    Case("reference", more=["algorithm.needs_reference=true", f"trainer.score_s={UNIT / SLOTS / 2}"], placements=THREE_STAGES),
    Case("switches", "constant", more=["engine.move_s=0.3", "trainer.move_s=0.3"]),
    Case("model", "", placements=REAL),
]}


@dataclass(frozen=True)
class Tried:
    """A placement: its steps' seconds as they were measured, as predicted for the lengths that they had, and as planned."""

    measured: Sequence[float]
    predicted: Sequence[float]
    planned: float
    sleeps: bool = True
    """Else it computes, and every step is disturbed a little, or a lot: its median counts."""

    @property
    def undisturbed(self) -> list[tuple[float, float]]:
        """(measured, predicted) of the steps but for those that took longer than the others of the run, relative to what was
        predicted, by more than `STALL`."""
        usual = statistics.median(map(truediv, self.measured, self.predicted))
        return [pair for pair in zip(self.measured, self.predicted, strict=True) if pair[0] < (1 + STALL) * usual * pair[1]]

    @property
    def error(self) -> float:
        if not self.sleeps:
            return 1 / statistics.median(map(truediv, self.measured, self.predicted)) - 1
        measured, predicted = map(sum, zip(*self.undisturbed, strict=True))
        return predicted / measured - 1

    @property
    def seconds(self) -> float:
        """A step, had those that were disturbed been like the others."""
        return statistics.mean(self.predicted) / (1 + self.error)

    def document(self) -> dict:
        found = {"seconds": self.seconds, "error": self.error, "as_planned": self.planned / self.seconds - 1,
                 "mean": statistics.mean(self.measured)}
        return {name: round(value, 4) for name, value in found.items()} | {"stalled": len(self.measured) - len(self.undisturbed)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--placements", nargs="+", help="these of the sweep only")
    parser.add_argument("--keep", type=Path, help="put runs there, and take what lies there already")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = {name: swept(CASES[name], args.placements, (args.keep or Path(scratch)) / name) for name in args.cases}
    print(json.dumps({"bench": "prediction", "emulation": True, "ratios": ratios(found), "raw": found}))


def ratios(found: dict[str, dict]) -> dict:
    """Over all cases."""
    emulated = {name: case for name, case in found.items() if CASES[name].lengths}
    pairs = [pair for case in found.values() for pair in ordered(list(case["placements"].values()))]
    real = {name: case for name, case in found.items() if name not in emulated}
    return {"sleep_error": largest_error(emulated), "model_error": largest_error(real),
            "regret": max((case["regret"] for case in emulated.values()), default=None),
            "order": round(sum(pairs) / len(pairs), 4) if pairs else None}


def largest_error(cases: Mapping[str, dict]) -> float | None:
    return max((abs(row["error"]) for case in cases.values() for row in case["placements"].values()), default=None)


def ordered(rows: Sequence[dict]) -> Iterator[bool]:
    """Of each two placements that differ: whether the prediction has them in the same order."""
    for one, other in combinations(rows, 2):
        if abs(one["seconds"] - other["seconds"]) > APART * min(one["seconds"], other["seconds"]):
            predicted = [row["seconds"] * (1 + row["error"]) for row in (one, other)]
            yield (predicted[0] < predicted[1]) == (one["seconds"] < other["seconds"])


def swept(case: Case, only: Sequence[str] | None, directory: Path) -> dict:
    """Every placement of a case, and the plan."""
    directory.mkdir(parents=True, exist_ok=True)
    profile = profiled(case, directory)
    placements = {name: keys for name, keys in case.placements.items() if only is None or name in only}
    plans = {name: given(case, keys, profile) for name, keys in placements.items()}
    planned = plan_run(resolve([], case.keys, {}, plugins()), plugins(), str(profile), 0, 8)
    best = planned.found.best
    free = not planned.placement.granularity  # as a placement by hand, whose roles find the size of their chunks
    chosen = next((name for name, (_, plan) in plans.items() if free and plan.devices == best.devices), "chosen")
    if chosen == "chosen" and only is None and case.lengths:
        planned.save(directory / "plan.yaml")
        placements["chosen"] = [f"placement={directory / 'plan.yaml'}"]
        plans["chosen"] = planned.problem, best
    rows = {}
    for name, keys in placements.items():
        rows[name] = tried(case, keys, *plans[name], directory / name.replace("|", "_")).document()
        print(f"{case.name} {name}: {json.dumps(rows[name])} load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    least = min(row["seconds"] for row in rows.values())
    regret = round(rows[chosen]["seconds"] / least - 1, 4) if chosen in rows else None
    return {"chosen": text(best.tree), "regret": regret, "placements": rows}


def given(case: Case, keys: Sequence[str], profile: Path) -> tuple[Problem, Plan]:
    """The plan that a placement by hand amounts to, and the problem that it is one of."""
    planned = plan_run(resolve([], [*case.keys, *keys], {}, plugins()), plugins(), str(profile), 0, 1)
    assert planned.given is not None
    return planned.problem, planned.given.plan


def profiled(case: Case, directory: Path) -> Path:
    path = directory / "profile.json"
    if not path.exists():
        command(["profile", *case.keys, "--budget", str(BUDGET_S), "--out", str(path)], directory)
    return path


def tried(case: Case, keys: Sequence[str], problem: Problem, plan: Plan, directory: Path) -> Tried:
    warm, steps = (WARM, STEPS) if case.lengths else (REAL_WARM, REAL_STEPS)
    if not (directory / "runs/bench/metrics.jsonl").exists():
        directory.mkdir(exist_ok=True)
        command(["train", *case.keys, *keys, "name=bench", f"steps={warm + steps + problem.staleness}", "log.samples=1000",
                 "checkpoint.every=0"], directory)
    rows, lengths = lines(directory / "runs/bench/metrics.jsonl"), lengths_of(case, lines(directory / "runs/bench/samples.jsonl"))
    times = [row["time"] for row in rows[warm - 1 : warm + steps]]
    predicted = replay(problem, plan, lengths)[warm : warm + steps]
    return Tried(np.diff(times).tolist(), predicted, predict(problem, plan).step_s, bool(case.lengths))


def lengths_of(case: Case, samples: Sequence[dict]) -> list[np.ndarray]:
    """Tokens of the responses of each step, in the order in which their prompts were fed."""
    steps: dict[int, list[int]] = {}
    for row in samples:
        steps.setdefault(row["step"], []).append(tokens(length(case.lengths, row["id"])) if case.lengths else characters(row))
    return [np.array(steps[step]) for step in sorted(steps)]


def characters(row: dict) -> int:
    """Tokens of a response of the tiny model: one a character, and one for the end."""
    return len(row["response"]) + (row["finish"] == "stop")


def command(arguments: Sequence[str], directory: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE / "emulation"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", "rlinf_cli", *arguments], cwd=directory, capture_output=True, text=True,
                          env=environment)
    if done.returncode:
        sys.exit(f"rlinf {' '.join(arguments)}\n{done.stderr[-3000:]}")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()

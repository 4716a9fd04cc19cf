"""What the modes of execution are worth on long-tailed lengths: EMULATION, with sleep-timed engine and trainer.

    python scripts/bench/modes.py

Processes, channels, locks, weights and the staleness gate are the real ones; only durations are declared (see
`emulation/`). Two devices of 8 slots, 32 samples a step; a response takes time in proportion to its length, whatever
runs beside it; training a step takes as long as decoding it at full slots on one device. `temporal`: both devices decode,
then both train. `async`: one decodes, the other trains, S steps ahead at most. The same samples are compared, 30 steps
after a warm-up. What 30 steps of a heavy tail give depends on which lengths they are, so those ratios are of the times of
three draws together. Ratios:

`async_*`: time of synchronous temporal over that of asynchronous, S=4 · `max_staleness`: the oldest token that was trained ·
`overhead`: share of a synchronous step that is the program's own, where a response takes 50 ms.
In `raw`: the curve over S, and `ideal`, the ratio of an executor that costs nothing (computed, with the same lengths):
what is missing to it is overhead; what is missing beyond it is the critical path of the longest responses. `machine_s` says how
fast the machine was: the overhead is of its processors, a response of 50 ms is not.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "emulation"))
from rlinf_emulation.lengths import TOKENS, length, tokens  # noqa: E402

SLOTS, SAMPLES, WARM, STEPS = 8, 32, 6, 30
DRAWS = 3
JUDGED = 4
"""The staleness of the ratios."""
STALENESS = (0, 1, 2, 4, 8)
DISTRIBUTIONS = ("constant", "lognormal", "pareto")
TEMPORAL, SPATIAL = "temporal", "rollout+reward:0,actor:1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unit", type=float, default=0.12, help="seconds that a response of mean length takes")
    parser.add_argument("--staleness", type=int, nargs="+", default=STALENESS)
    parser.add_argument("--draws", type=int, default=DRAWS, help="of lengths, for the judged ratios")
    parser.add_argument("--lengths", nargs="+", default=DISTRIBUTIONS, choices=DISTRIBUTIONS)
    args = parser.parse_args()
    curves = {}
    with tempfile.TemporaryDirectory() as scratch:
        for lengths in args.lengths:
            curves[lengths] = curve(lengths, args, Path(scratch))
            print(f"{lengths}: {json.dumps(curves[lengths])}", flush=True)
        overhead = framework_share(Path(scratch))
    print(json.dumps(report(curves, overhead, args)))


def report(curves: dict, overhead: dict, args: argparse.Namespace) -> dict:
    ratios = {f"async_{lengths}": one["draws"]["ratio"] for lengths, one in curves.items()}
    oldest = max(one["draws"]["staleness"] for one in curves.values())
    return {"bench": "modes", "emulation": True,
            "ratios": {**ratios, "max_staleness": oldest, "overhead": overhead["share"]},
            "raw": {"unit_s": args.unit, "steps": STEPS, "curves": curves, "overhead": overhead}}


def curve(lengths: str, args: argparse.Namespace, scratch: Path) -> dict:
    """Time of synchronous temporal, and of each S its ratio to that, with one draw of lengths; the judged S with all."""
    case = Case(lengths, args.unit, 0)
    base = temporal(case, scratch)
    found = {"temporal": {"seconds": base["seconds"], "ideal_seconds": base["ideal"]}}
    runs = {staleness: spatial(case, staleness, scratch) for staleness in sorted({*args.staleness, JUDGED})}
    for staleness, one in runs.items():
        found[f"S={staleness}"] = {
            "seconds": one["seconds"], "ratio": round(base["seconds"] / one["seconds"], 3),
            "ideal": round(base["ideal"] / one["ideal"], 3), "staleness": one["staleness"], "explained": one["explained"]}
    pairs = [(base, runs[JUDGED])]
    for draw in range(1, 1 if lengths == "constant" else args.draws):
        case = Case(lengths, args.unit, draw)
        pairs.append((temporal(case, scratch), spatial(case, JUDGED, scratch)))
    return {**found, "draws": together(pairs)}


def together(pairs: Sequence[tuple[dict, dict]]) -> dict:
    """Ratio of the times of several draws."""
    total = {name: [sum(pair[place][name] for pair in pairs) for place in (0, 1)] for name in ("seconds", "ideal")}
    return {**{mine: round(total[name][0] / total[name][1], 3) for mine, name in (("ratio", "seconds"), ("ideal", "ideal"))},
            "each": [round(one["seconds"] / other["seconds"], 3) for one, other in pairs],
            "ideal_each": [round(one["ideal"] / other["ideal"], 3) for one, other in pairs],
            "staleness": max(other["staleness"] for _, other in pairs)}


@dataclass(frozen=True)
class Case:
    """Which lengths, and the seconds of a mean one."""

    lengths: str
    unit: float
    draw: int

    def length(self, request: str) -> float:
        return length(self.lengths, request, self.draw)


def temporal(case: Case, scratch: Path) -> dict:
    found = run(scratch / f"{case.lengths}-{case.draw}-temporal", case, WARM + STEPS, TEMPORAL, 0)
    return {**found, "ideal": ideal_temporal(found["ids"], case)}


def spatial(case: Case, staleness: int, scratch: Path) -> dict:
    found = run(scratch / f"{case.lengths}-{case.draw}-{staleness}", case, WARM + STEPS + max(STALENESS), SPATIAL, staleness)
    return {**found, "ideal": ideal_spatial(found["ids"], case, staleness)}


def run(directory: Path, case: Case, steps: int, placement: str, staleness: int) -> dict:
    """Seconds of the steps that are compared, the ids of each step's samples, and the age of the oldest token."""
    directory.mkdir()
    command = [sys.executable, "-m", "rlinf_cli", "train", "--algo", "emulated", "--engine", "emulated", "--trainer",
               "emulated", "--name", "bench", "--steps", str(steps), "--devices", "cpu:2", f"placement={placement}",
               f"rollout.staleness={staleness}", f"rollout.prompts={SAMPLES}", "rollout.group_size=1",
               f"rollout.max_new_tokens={20 * TOKENS}", f"engine.slots={SLOTS}", f"engine.lengths={case.lengths}",
               f"engine.draw={case.draw}", f"engine.unit_s={case.unit}", f"trainer.unit_s={case.unit / SLOTS}",
               "algorithm.minibatches=1", f"log.samples={SAMPLES}"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE / "emulation"), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    rows = lines(directory / "runs/bench/metrics.jsonl")
    last = min(WARM + STEPS, len(rows))
    window = rows[WARM:last]
    parts = [sum(value for name, value in row.items() if name.startswith("timing/") and name != "timing/step_s")
             for row in window]
    return {"seconds": round(rows[last - 1]["time"] - rows[WARM - 1]["time"], 3),
            "ids": samples_of(lines(directory / "runs/bench/samples.jsonl")),
            "staleness": max(row["rollout/staleness/max"] for row in rows),
            "explained": round(min(part / row["timing/step_s"] for part, row in zip(parts, window)), 4)}


def samples_of(rows: Sequence[dict]) -> list[list[str]]:
    """Ids of the samples of each step, in the order in which their prompts were fed."""
    steps: dict[int, list[str]] = {}
    for row in rows:
        steps.setdefault(row["step"], []).append(row["id"])
    return [steps[step] for step in sorted(steps)]


def ideal_temporal(ids: list[list[str]], case: Case) -> float:
    """Both devices decode a step, then both train it; nothing else takes time."""
    window = ids[WARM : WARM + STEPS]
    return sum(decoding(step, case, 2 * SLOTS) + work(step, case) / SLOTS / 2 for step in window) * case.unit


def ideal_spatial(ids: list[list[str]], case: Case, staleness: int) -> float:
    """One device decodes, at most so many steps ahead; the other trains each sample as soon as it can."""
    slots, published = [0.0] * SLOTS, [0.0]
    for number, step in enumerate(ids):
        gate, ends = published[max(0, number - staleness)], []
        for one in step:
            units = case.length(one)
            end = max(heapq.heappop(slots), gate) + units
            heapq.heappush(slots, end)
            ends.append((end, tokens(units) / TOKENS))
        at = published[-1]
        for end, units in sorted(ends):
            at = max(at, end) + units / SLOTS
        published.append(at)
    return (published[WARM + STEPS] - published[WARM]) * case.unit


def decoding(step: Sequence[str], case: Case, count: int) -> float:
    slots = [0.0] * count
    for one in step:
        heapq.heappush(slots, heapq.heappop(slots) + case.length(one))
    return max(slots)


def work(step: Sequence[str], case: Case) -> float:
    return sum(tokens(case.length(one)) / TOKENS for one in step)


def framework_share(scratch: Path) -> dict:
    """Of a step on one device whose responses take 50 ms each: four waves of them, and as long to train."""
    one = run(scratch / "overhead", Case("constant", 0.05, 0), WARM + STEPS, "rollout+reward+actor:0", 0)
    step = one["seconds"] / STEPS
    return {"step_s": round(step, 4), "share": round(1 - 2 * SAMPLES / SLOTS * 0.05 / step, 4), "machine_s": machine()}


def machine() -> float:
    """Seconds of ten million additions in Python: what the program's own work takes goes with it, what is slept does not."""
    began, total = time.perf_counter(), 0
    for number in range(10_000_000):
        total += number
    return round(time.perf_counter() - began, 3)


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()

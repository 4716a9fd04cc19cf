"""Asynchronous against synchronous training of the real tiny model, on a task whose responses have a long tail.

    python scripts/bench/longtail.py

The answer is the first digit of a response, whatever follows: lengths stay spread out, and a step that waits for its longest
response has most of a processor idle. Synchronous: rollout and actor take turns on two CPU slots. Asynchronous: a slot each,
generation up to S steps ahead. Both train the same prompts in the same steps, three seeds. Ratios: `async`, time of the
synchronous run over that of the asynchronous one, steps only; `reward`, final reward of the asynchronous run over that of
the synchronous one (mean over the last tenth of the steps; medians over the seeds).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TASK = ["reward.name=regex", "reward.pattern=([0-9])", "reward.take=first", "rollout.group_size=8", "algorithm.minibatches=1",
        "trainer.schedule=constant"]
SYNCHRONOUS = ["placement=temporal"]
ASYNCHRONOUS = ["placement=rollout+reward:0,actor:1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--staleness", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--longest", type=int, default=192)
    parser.add_argument("--lr", type=float, default=5e-4)
    args = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in args.seeds:
            ahead = [*ASYNCHRONOUS, f"rollout.staleness={args.staleness}"]
            pairs.append((run(Path(scratch) / f"sync-{seed}", seed, SYNCHRONOUS, args),
                          run(Path(scratch) / f"async-{seed}", seed, ahead, args)))
            print(f"seed {seed}: synchronous {pairs[-1][0]} · asynchronous {pairs[-1][1]}", flush=True)
    print(json.dumps(report(pairs, args)))


def report(pairs: list[tuple[dict, dict]], args: argparse.Namespace) -> dict:
    times = [one["seconds"] / other["seconds"] for one, other in pairs]
    rewards = [statistics.median(pair[place]["reward"] for pair in pairs) for place in (0, 1)]
    return {"bench": "longtail",
            "ratios": {"async": round(statistics.median(times), 3), "reward": round(rewards[1] / rewards[0], 3)},
            "raw": {"steps": args.steps, "staleness": args.staleness, "synchronous": [pair[0] for pair in pairs],
                    "asynchronous": [pair[1] for pair in pairs]}}


def run(directory: Path, seed: int, mode: list[str], args: argparse.Namespace) -> dict:
    directory.mkdir()
    command = [sys.executable, "-m", "rlinf_cli", "train", "--algo", "grpo", "--name", "bench", "--steps", str(args.steps),
               "--seed", str(seed), "--devices", "cpu:2", f"rollout.prompts={args.prompts}", f"trainer.lr={args.lr}",
               f"rollout.max_new_tokens={args.longest}", *TASK, *mode]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    rows = [json.loads(line) for line in (directory / "runs/bench/metrics.jsonl").read_text().splitlines()]
    last = rows[-max(1, len(rows) // 10) :]
    return {"seconds": round(sum(row["timing/step_s"] for row in rows), 2),
            "reward": round(statistics.mean(row["reward/mean"] for row in last), 4),
            "length_mean": round(statistics.mean(row["rollout/response_len/mean"] for row in rows), 1),
            "length_max": max(row["rollout/response_len/max"] for row in rows),
            "staleness": max(row["rollout/staleness/max"] for row in rows)}


if __name__ == "__main__":
    main()

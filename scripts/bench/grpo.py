"""GRPO on the digits task, ours beside TRL's GRPOTrainer: same initial weights, task, shapes and optimiser.

    python scripts/bench/grpo.py --peer-python PEER/bin/python        (its environment: scripts/bench/peers/grpo_trl.py)

Rounds alternate between the two, so that both see the same machine. TRL runs with one thread and with two; the faster
counts. Ratios: `steady`, samples/s in the second half of a run; `whole_run`, wall time of 300 steps from the command to
its end, start-up included.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPTS, GROUP = 16, 16
SAMPLES = PROMPTS * GROUP
PEER = Path(__file__).parent / "peers" / "grpo_trl.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", default=os.environ.get("RLINF_BENCH_PEER_TRL"), required=False)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minibatches", type=int, default=1)
    args = parser.parse_args()
    if not args.peer_python:
        parser.error("--peer-python (or RLINF_BENCH_PEER_TRL) must name the python of TRL's environment")
    with tempfile.TemporaryDirectory() as scratch:
        model = model_directory()
        ours, peers = [], []
        for number in range(args.rounds):
            ours.append(run_ours(Path(scratch) / f"ours-{number}", args))
            # the third round decides nothing about threads any more: the better of the first two is run again
            threads = 1 + number if number < 2 else best(peers)["threads"]
            peers.append(run_peer(Path(scratch) / f"peer-{number}", model, threads, args))
            print(f"round {number + 1}: ours {brief(ours[-1])} · TRL, {threads} threads {brief(peers[-1])}", flush=True)
    print(json.dumps(report(ours, peers, args)))


def report(ours: list[dict], peers: list[dict], args: argparse.Namespace) -> dict:
    fastest = [peer for peer in peers if peer["threads"] == best(peers)["threads"]]
    middle = {name: statistics.median(run[name] for run in ours) for name in ("samples_per_s", "whole_run_s")}
    other = {name: statistics.median(run[name] for run in fastest) for name in ("samples_per_s", "whole_run_s")}
    return {
        "bench": "grpo",
        "ratios": {"steady": round(middle["samples_per_s"] / other["samples_per_s"], 2),
                   "whole_run": round(other["whole_run_s"] / middle["whole_run_s"], 2)},
        "raw": {"steps": args.steps, "minibatches": args.minibatches, "ours": [summary(run) for run in ours],
                "trl": [summary(run) for run in peers]},
    }


def model_directory() -> str:
    code = ("from rlinf_cli.models.resolve import resolve_model; from rlinf_cli.plugins.loader import plugins; "
            "print(resolve_model('tiny:digits', 0, plugins()))")
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()[-1]


def run_ours(directory: Path, args: argparse.Namespace) -> dict:
    directory.mkdir()
    began = time.time()
    command = [sys.executable, "-m", "rlinf_cli", "train", "--algo", "grpo", "--name", "bench", "--steps", str(args.steps),
               f"algorithm.minibatches={args.minibatches}", f"rollout.prompts={PROMPTS}", f"rollout.group_size={GROUP}",
               "trainer.lr=1e-3", "trainer.schedule=constant"]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)
    whole = time.time() - began
    rows = [json.loads(line) for line in (directory / "runs/bench/metrics.jsonl").read_text().splitlines()]
    half = len(rows) // 2
    steady = (len(rows) - half) * SAMPLES / sum(row["timing/step_s"] for row in rows[half:])
    by_clock = (len(rows) - 1 - half) * SAMPLES / (rows[-1]["time"] - rows[half]["time"])
    return {"samples_per_s": min(steady, by_clock), "whole_run_s": whole, "rewards": [row["reward/mean"] for row in rows]}


def run_peer(directory: Path, model: str, threads: int, args: argparse.Namespace) -> dict:
    directory.mkdir()
    began = time.time()
    command = [args.peer_python, str(PEER), "--model", model, "--steps", str(args.steps), "--threads", str(threads),
               "--minibatches", str(args.minibatches), "--prompts", str(PROMPTS), "--group", str(GROUP), "--out",
               str(directory)]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1]) | {"whole_run_s": time.time() - began, "threads": threads}


def best(peers: list[dict]) -> dict:
    return max(peers, key=lambda run: run["samples_per_s"])


def summary(run: dict) -> dict:
    """Without the whole curve: when a window of ten steps first reached a reward, and where it ended."""
    rewards = run["rewards"]
    window = [statistics.mean(rewards[i : i + 10]) for i in range(len(rewards) - 9)]
    reached = {f"step_reward_{level}": next((i + 10 for i, value in enumerate(window) if value >= level), None)
               for level in (0.5, 0.9)}
    kept = {name: round(value, 2) for name, value in run.items() if isinstance(value, (int, float))}
    return kept | reached | {"last_reward": round(window[-1], 3)}


def brief(run: dict) -> str:
    return f"{run['samples_per_s']:.0f} samples/s, {run['whole_run_s']:.0f} s"


if __name__ == "__main__":
    main()

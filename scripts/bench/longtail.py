"""Asynchronous against synchronous training of the real tiny model, on a task whose responses have a long tail.

    python scripts/bench/longtail.py

A response is the last digit of a number of two digits, and then some filler: 4 characters on average, but 200 after a number
that begins with 0, up to the limit. The model learns this first (supervised, once), from rows that have the right digit at times
only; then GRPO rewards the right digit, whatever follows. So lengths stay about as they are, and a step waits for its longest
response with most of a processor idle.

Synchronous: rollout and actor take turns on two CPU slots. Asynchronous: a slot each, generation up to S steps ahead (with
`--staleness 0`: a slot each, and no step ahead). Both train the same prompts in the same steps, three seeds. Ratios, medians
over the seeds: `async`, time of the synchronous run over that of the asynchronous one, steps only; `tokens`, tokens a second of
the asynchronous run over those of the synchronous one, which differs from it as far as lengths do; `reward`, final reward (mean
of the last tenth of the steps) of the asynchronous run over that of the synchronous one.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

START = ["--algo", "sft", "--name", "start", "--steps", "150", "data.name=start.jsonl", "rollout.prompts=128", "trainer.lr=2e-3",
         "trainer.schedule=linear"]
KNOWN = 0.4
"""Share of the rows to start from that have the right digit; the others have any."""
LONG, SHORT = (",", 200), (".", 4)
"""Filler after the answer, and its mean length: of numbers that begin with 0, and of the others."""

TASK = ["--algo", "grpo", "--name", "bench", "model.name=../start", "data.name=digits", "reward.name=regex",
        "reward.pattern=([0-9])", "reward.take=first", "rollout.group_size=4", "algorithm.aggregation=sequence-mean",
        "algorithm.minibatches=1", "trainer.schedule=constant"]
SYNCHRONOUS = ["placement=temporal"]
ASYNCHRONOUS = ["placement=rollout+reward:0,actor:1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--staleness", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--longest", type=int, default=256)
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    pairs = []
    with tempfile.TemporaryDirectory() as scratch:
        make_start(Path(scratch), args.longest)
        for seed in args.seeds:
            ahead = [*ASYNCHRONOUS, f"rollout.staleness={args.staleness}"]
            pairs.append((run(Path(scratch) / f"sync-{seed}", seed, SYNCHRONOUS, args),
                          run(Path(scratch) / f"async-{seed}", seed, ahead, args)))
            print(f"seed {seed}: synchronous {pairs[-1][0]} · asynchronous {pairs[-1][1]}", flush=True)
    print(json.dumps(report(pairs, args)))


def report(pairs: list[tuple[dict, dict]], args: argparse.Namespace) -> dict:
    times = [one["seconds"] / other["seconds"] for one, other in pairs]
    tokens = [other["tokens_per_s"] / one["tokens_per_s"] for one, other in pairs]
    rewards = [other["reward"] / one["reward"] for one, other in pairs]
    return {"bench": "longtail",
            "ratios": {name: round(statistics.median(values), 3)
                       for name, values in (("async", times), ("tokens", tokens), ("reward", rewards))},
            "raw": {"steps": args.steps, "staleness": args.staleness, "synchronous": [pair[0] for pair in pairs],
                    "asynchronous": [pair[1] for pair in pairs]}}


def make_start(scratch: Path, longest: int) -> None:
    """The model that all runs begin with, in `scratch/start`."""
    draw = random.Random(0)
    rows = [json.dumps(row(draw, longest)) for _ in range(20000)]
    (scratch / "start.jsonl").write_text("\n".join(rows))
    command(scratch, "train", *START, "--devices", "cpu:2", f"rollout.max_new_tokens={longest}")
    command(scratch, "export", "start", "start")


def row(draw: random.Random, longest: int) -> dict:
    """A prompt and a response of at most `longest` tokens, its end token included."""
    number = f"{draw.randrange(100):02d}"
    digit = number[-1] if draw.random() < KNOWN else draw.choice("0123456789")
    filler, mean = LONG if number[0] == "0" else SHORT
    return {"prompt": f"d{number}=", "answer": digit + filler * min(int(draw.expovariate(1 / mean)), longest - 2)}


def run(directory: Path, seed: int, mode: list[str], args: argparse.Namespace) -> dict:
    directory.mkdir()
    # small micro-batches: long and short responses are not padded to one length
    command(directory, "train", *TASK, "--steps", str(args.steps), "--seed", str(seed), "--devices", "cpu:2",
            f"rollout.prompts={args.prompts}", f"rollout.max_new_tokens={args.longest}", f"trainer.lr={args.lr}",
            "trainer.micro_batch_tokens=1024", *mode)
    rows = [json.loads(line) for line in (directory / "runs/bench/metrics.jsonl").read_text().splitlines()]
    return measured(rows)


def measured(rows: list[dict]) -> dict:
    seconds = sum(row["timing/step_s"] for row in rows)
    tokens = sum(row["rollout/response_len/mean"] * row["rollout/samples"] for row in rows)
    return {"seconds": round(seconds, 2), "tokens_per_s": round(tokens / seconds),
            "first_reward": mean(rows[: len(rows) // 10 or 1], "reward/mean"),
            "reward": mean(rows[-(len(rows) // 10 or 1) :], "reward/mean"),
            "length_mean": mean(rows, "rollout/response_len/mean"), "length_max": mean(rows, "rollout/response_len/max"),
            "rollout_s": mean(rows, "timing/rollout_s"), "actor_s": mean(rows, "timing/actor_s"),
            "wait_lock_s": mean(rows, "timing/wait_lock_s"), "staleness": max(row["rollout/staleness/max"] for row in rows)}


def mean(rows: list[dict], name: str) -> float:
    return round(statistics.mean(row[name] for row in rows), 4)


def command(directory: Path, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "rlinf_cli", *arguments], cwd=directory, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments)}\n{done.stderr[-3000:]}")


if __name__ == "__main__":
    main()

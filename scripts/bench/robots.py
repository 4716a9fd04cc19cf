"""Robots in their simulators: a ManiSkill task trained by PPO, or a LIBERO task cloned from its expert and trained on.

    python scripts/bench/robots.py maniskill [--task PushCube-v1] [--steps 80] [--seed 0] [KEY=VALUE ...]
    python scripts/bench/robots.py libero [--demos 5] [--steps 20] [--seed 0] [KEY=VALUE ...]

In an environment that has the simulator (scripts/test_simulators makes one). Through the command line, as a user does it. Ratios:
`success`, the share of evaluation episodes that were solved, acting without noise; of LIBERO `cloned` before RL. KEY=VALUE go to
training, of LIBERO to RL.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
CLONING = ("model.hidden=[256,256]", "model.log_std=-1.5", "trainer.lr=1e-3", "trainer.schedule=cosine",
           "algorithm.minibatches=8")
CLONED = 200
"""Steps of cloning; those of RL are counted on from there."""
IMPROVING = ("algorithm.gamma=0.99", "algorithm.epochs=4", "algorithm.minibatches=8", "algorithm.target_kl=0.05",
             "trainer.lr=1e-4", "env.count=8", "env.processes=2", "rollout.steps=256")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("maniskill", "libero"))
    parser.add_argument("--task", default="", help="PushCube-v1 (maniskill), object/0 (libero)")
    parser.add_argument("--steps", type=int, default=0, help="of RL: 80 (maniskill), 20 (libero)")
    parser.add_argument("--demos", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = {"maniskill": maniskill, "libero": libero}[args.what](Path(scratch), args)
    print(json.dumps({"bench": "robots", "what": args.what, "seed": args.seed, **found}))


def maniskill(directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    task, seed = args.task or "PushCube-v1", ("--seed", str(args.seed))
    trained = timed(directory, "train", str(CONFIGS / "ppo-pushcube.yaml"), "--env", f"maniskill:{task}", "--name", "rl",
                    "--steps", str(args.steps or 80), *seed, *args.overrides)
    told = evaluated(directory, "rl", *seed)
    return {"task": task, "ratios": {"success": told["success"]}, "raw": {"train_s": trained, **told, **course(directory, "rl")}}


def libero(directory: Path, args: argparse.Namespace) -> dict[str, Any]:
    where, seed = ("--env", f"libero:{args.task or 'object/0'}"), ("--seed", str(args.seed))
    shown = timed(directory, "demos", *where, "--episodes", str(args.demos), "--noise", "0.1", *seed)
    cloned = timed(directory, "train", "--algo", "bc", *where, *seed, *CLONING, "--steps", str(CLONED), "--name", "bc")
    before = evaluated(directory, "bc", *seed)
    trained = timed(directory, "train", "--fork", "bc", "--algo", "ppo", "workflow=embodied", *where, *seed, *IMPROVING,
                    "--steps", str(CLONED + (args.steps or 20)), "--name", "rl", *args.overrides)
    after = evaluated(directory, "rl", *seed)
    return {"task": where[1], "ratios": {"cloned": before["success"], "success": after["success"]},
            "raw": {"demos_s": shown, "bc_s": cloned, "rl_s": trained, "before": before, "after": after,
                    **course(directory, "rl")}}


def timed(directory: Path, *words: str) -> float:
    began = time.monotonic()
    rlinf(directory, *words)
    return round(time.monotonic() - began, 1)


def evaluated(directory: Path, run: str, *words: str) -> dict[str, Any]:
    (task,) = json.loads(rlinf(directory, "eval", run, "--json", *words))["tasks"]
    return {"success": round(task["successes"] / task["trials"], 3), "successes": task["successes"], "trials": task["trials"],
            "interval": task["mean@1_interval"], "return": round(task["reward"], 2)}


def course(directory: Path, run: str) -> dict[str, Any]:
    lines = (directory / "runs" / run / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {"train_success": [round(row["env/success"], 2) for row in rows if row.get("env/episodes")],
            "env_steps_per_s": round(sum(row["throughput/env_steps_per_s"] for row in rows) / len(rows))}


def rlinf(directory: Path, *words: str) -> str:
    command = [sys.executable, "-m", "rlinf_cli", *words]
    done = subprocess.run(command, cwd=directory, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


if __name__ == "__main__":
    main()

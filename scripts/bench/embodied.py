"""Environment steps a second, learner included, beside stable-baselines3; and what placements of a simulator are worth.

    python scripts/bench/embodied.py [--only cartpole,cartpole8,halves,placement,maniskill,link] [--peer-python PATH]

Ratios (of the same run; greater is better for us):
`cartpole_vs_sb3` (32 environments), `cartpole8_vs_sb3` (8), `maniskill_vs_sb3` (16): steady environment steps/s of `rlinf
train`, from the end of its first step on, over those of stable-baselines3's PPO with the same numbers of environments, steps,
passes, minibatches, layers and cores, the better of its DummyVecEnv and SubprocVecEnv · `halves`: a simulator of 4 ms and a
policy of 4 ms in two processes, in halves over all at once (sleep-timed) · `hybrid_vs_best_single`: EMULATION, see below ·
`predicted`: what `scheduling.embodied` predicts for it · `link`: a hand-over of arrays and its answer through a channel, over
the same through `flow.exchange`.

The emulated simulator of the paper's shape, on 8 devices, in units of g, the time in which the policy answers all
environments on all devices, linear in environments a device: a step is 0.67 g whatever the number of environments; simulator
and policy do not fit on a device together, so that each change costs 0.25 g; training is 0.33 g a step on all devices.
Everything but these sleeps is real. temporal: all roles in turn on all devices · spatial: simulator, policy, training on 1, 4
and 3 devices, one step after the other, since training is on-policy · hybrid: simulator and policy on 1 and 7 devices in
halves, training on all.
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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlinf_cli.scheduling.embodied import Environments, embodied_problem
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import InTurn, Leaf

HERE = Path(__file__).parent
CASES = ("cartpole", "cartpole8", "halves", "placement", "link")
"""Of `--only`; `maniskill` needs an environment that has it."""
COUNT, DEVICES, ACTIONS, WARM, STEPS = 112, 8, 16, 2, 4
DEVICES_OURS = "cpu:2"
"""Two cores; stable-baselines3 has the same."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--peer-python", default=sys.executable, help="with stable-baselines3 (and mani-skill)")
    parser.add_argument("--unit", type=float, default=0.1, help="g, seconds")
    args = parser.parse_args()
    ratios, raw = {}, {}
    for case in args.only.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            mine, measured = globals()[case](Path(scratch), args)
        ratios |= mine
        raw[case] = measured
        print(f"{case}: {json.dumps(measured)}", flush=True)
    print(json.dumps({"bench": "embodied", "ratios": {name: round(value, 3) for name, value in ratios.items()}, "raw": raw}))


# ---- beside stable-baselines3 ----


def cartpole(scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    return cartpole_with(32, "cartpole_vs_sb3", scratch, args)


def cartpole8(scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    return cartpole_with(8, "cartpole8_vs_sb3", scratch, args)


def cartpole_with(count: int, name: str, scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    job = {"env": "CartPole-v1", "count": count, "steps": 128, "epochs": 4, "minibatches": 4, "gamma": 0.99, "lambda": 0.95,
           "lr": 3e-4, "hidden": [64, 64], "total": 20 * 128 * count}
    return beside_sb3(name, job, ["env.name=CartPole-v1"], scratch, args)


def maniskill(scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    job = {"env": "PushCube-v1", "maniskill": True, "control": "pd_joint_delta_pos", "count": 16, "steps": 32, "epochs": 8,
           "minibatches": 4, "gamma": 0.8, "lambda": 0.9, "lr": 3e-4, "hidden": [256, 256, 256], "total": 8192}
    keys = ["env.name=maniskill:PushCube-v1", "env.control=pd_joint_delta_pos"]
    return beside_sb3("maniskill_vs_sb3", job, keys, scratch, args)


def beside_sb3(name: str, job: dict, keys: Sequence[str], scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    """Both in the same minutes: theirs, ours, theirs, ours."""
    job["batch"] = job["count"] * job["steps"] // job["minibatches"]
    theirs, ours = [], []
    for turn in range(2):
        done = subprocess.run([args.peer_python, str(HERE / "peers/embodied_sb3.py"), json.dumps(job)], check=True, text=True,
                              capture_output=True)
        found = json.loads(done.stdout.splitlines()[-1])
        theirs.append(max(one["env_steps_per_s"] for one in found.values()))
        ours.append(trained(job, keys, scratch / str(turn), args))
    return {name: statistics.mean(ours) / statistics.mean(theirs)}, {"ours": ours, "sb3": theirs}


def trained(job: dict, keys: Sequence[str], directory: Path, args: argparse.Namespace) -> float:
    steps = job["total"] // (job["count"] * job["steps"])
    rows = train(directory, [
        *keys, f"env.count={job['count']}", f"rollout.steps={job['steps']}", f"algorithm.epochs={job['epochs']}",
        f"algorithm.minibatches={job['minibatches']}", f"algorithm.gamma={job['gamma']}", f"algorithm.gae_lambda={job['lambda']}",
        f"trainer.lr={job['lr']}", f"model.hidden={json.dumps(job['hidden'])}", f"steps={steps}",
        f"cluster.devices={DEVICES_OURS}"],
        python=args.peer_python if job.get("maniskill") else sys.executable)
    return rate(rows)


def rate(rows: Sequence[dict]) -> float:
    """Environment steps a second between the end of the first step and that of the last."""
    steps = rows[-1]["progress/env_steps"] - rows[0]["progress/env_steps"]
    return steps / (rows[-1]["time"] - rows[0]["time"])


def train(directory: Path, keys: Sequence[str], python: str = sys.executable) -> list[dict]:
    """The metrics of a run; it fails as the run does."""
    directory.mkdir(parents=True)
    paths = os.pathsep.join([str(HERE / "emulation"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([python, "-m", "rlinf_cli", "train", "--name", "run", *keys], cwd=directory, text=True,
                          capture_output=True, env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        raise SystemExit(done.stderr)
    return [json.loads(line) for line in (directory / "runs/run/metrics.jsonl").read_text().splitlines()]


# ---- emulated ----


def emulated(directory: Path, placement: str, keys: Sequence[str], steps: int) -> float:
    """Seconds of a step, the median."""
    rows = train(directory, [
        "env.name=emulated", "model.name=emulated", "algorithm.name=emulated", "trainer.name=emulated", f"placement={placement}",
        "algorithm.epochs=1", "algorithm.minibatches=1", f"steps={WARM + steps}", *keys])
    return statistics.median(row["timing/step_s"] for row in rows[WARM:])


def halves(scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    keys = ["env.count=8", "rollout.steps=100", "env.step_s=0", "env.each_s=0.0005", "model.act_s=0.0005", "cluster.fused=false",
            "cluster.devices=cpu:2"]
    where = "environment:0,rollout:1,actor:0-1"
    seconds = {number: emulated(scratch / str(number), where, [*keys, f"env.halves={number}"], STEPS) for number in (1, 2)}
    return {"halves": seconds[1] / seconds[2]}, {"step_s": seconds}


def placement(scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    g = args.unit
    keys = [f"env.count={COUNT}", f"rollout.steps={ACTIONS}", f"env.step_s={0.67 * g}", f"model.act_s={g * DEVICES / COUNT}",
            f"model.change_s={0.25 * g}", f"trainer.transition_s={0.33 * g * DEVICES / COUNT}", f"cluster.devices=cpu:{DEVICES}"]
    apart = [*keys, "cluster.fused=false"]
    seconds = {
        "temporal": emulated(scratch / "temporal", "temporal", [*keys, "cluster.fused=true", "env.resident=false"], STEPS),
        "spatial": emulated(scratch / "spatial", "environment:0,rollout:1-4,actor:5-7", apart, STEPS),
        "hybrid": emulated(scratch / "hybrid", "environment:0,rollout:1-7,actor:0-7", apart, STEPS)}
    ideal = predicted(g)
    best = min(seconds["temporal"], seconds["spatial"])
    return ({"hybrid_vs_best_single": best / seconds["hybrid"], "predicted": ideal["temporal"] / ideal["hybrid"]},
            {"emulation": True, "g_s": g, "step_s": seconds, "predicted_s": ideal})


def predicted(g: float) -> dict[str, float]:
    """With these costs, and without what an H100 adds: moves of weights, the optimiser step."""
    shape = Environments("bench", COUNT, ACTIONS, 0.67 * g, 0.0, g * DEVICES / COUNT, 0.5 * g)
    plan, found = Plan(InTurn(Leaf("interaction", DEVICES), Leaf("train", DEVICES))), {}
    for name, inside in (("temporal", "shared"), ("hybrid", "split")):
        problem = embodied_problem("h100", shape, DEVICES, inside)
        stages = tuple(replace(stage, cost=replace(stage.cost, step_s=0.0)) for stage in problem.stages)
        found[name] = predict(replace(problem, stages=stages, switch_s={}, sync_s=0.0), plan).step_s
    return found


# ---- hand-over ----


def link(scratch: Path, args: argparse.Namespace) -> tuple[dict, dict]:
    done = subprocess.run([sys.executable, str(HERE / "peers/link.py")], check=True, text=True, capture_output=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {"link": found["channel_s"] / found["exchange_s"]}, found


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)

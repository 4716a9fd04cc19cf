"""PPO as a whole: a critic that is trained, saved, gone on from and placed like the actor; a trained reward model."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.e2e

SMALL = ("--algo", "ppo", "rollout.prompts=8", "rollout.group_size=2", "rollout.max_new_tokens=4", "trainer.lr=0.003",
         "trainer.warmup_steps=0", "algorithm.epochs=2", "algorithm.kl_coef=0.1")
SCRIPT = Path(__file__).parents[2] / "scripts/reward_model.py"
OF_THE_CLOCK = ("time", "timing/", "throughput/", "memory/", "plan/")


def numbers(run):
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{name: value for name, value in row.items() if not name.startswith(OF_THE_CLOCK)} for row in rows]


def tensors(run, step):
    """Models and optimisers of both, by file."""
    path = run / f"checkpoints/step_{step:06d}"
    return {(str(file.relative_to(path)), name): tensor.tolist()
            for file in path.rglob("*.safetensors") for name, tensor in load_file(file).items()}


def test_a_run_that_is_gone_on_from_elsewhere_is_the_same_run(rlinf, tmp_path):
    """Both halves of the state, the adaptive weight of the divergence and the moments of returns included; and both modes."""
    runs = tmp_path / "runs"
    rlinf("train", *SMALL, "--name", "whole", "--steps", "4", "--reward", "length", "reward.target=2", "reward.tolerance=8",
          "checkpoint.every=2", "algorithm.kl_target=0.01", "algorithm.kl_horizon=100", "deterministic=true", check=True)
    rows = numbers(runs / "whole")
    assert all(row["critic/grad_norm"] > 0 < row["actor/grad_norm"] for row in rows)
    assert len({row["actor/kl_coef"] for row in rows}) == 4
    shutil.copytree(runs / "whole", runs / "again")
    done = rlinf("train", "--resume", "runs/again@2", "cluster.devices=cpu:2", "placement=spatial", check=True)
    assert "spatial: rollout, reward | reference, critic, actor on cpu:0 | cpu:1" in done.stderr
    assert numbers(runs / "again") == rows
    assert tensors(runs / "again", 4) == tensors(runs / "whole", 4) != tensors(runs / "whole", 2)
    assert ("critic/model/model.safetensors", "score.weight") in tensors(runs / "whole", 4)
    state = json.loads((runs / "again/checkpoints/step_000004/algorithm.json").read_text())
    assert json.loads((runs / "again/checkpoints/step_000004/critic/algorithm.json").read_text()) == state
    exported = rlinf("export", "runs/whole", "critic", "--critic", check=True)
    assert "critic" in exported.stdout
    assert load_file(tmp_path / "critic/model.safetensors")["score.weight"].shape == (1, 128)


def test_a_reward_model_and_roles_that_share_processes(rlinf, tmp_path):
    """Two ranks of each, in two processes; generation runs a step ahead."""
    subprocess.run([sys.executable, SCRIPT, tmp_path / "judge", "--steps", "5"], check=True)
    rlinf("train", *SMALL, "--steps", "3", "--name", "run", "--reward", "model + 0.5*length", "reward.model.path=judge",
          "reward.length.target=2", "rollout.staleness=1", "--devices", "cpu:2", "cluster.fused=true",
          "--placement", "temporal", check=True)
    rows = numbers(tmp_path / "runs/run")
    assert len({row["reward/model/mean"] for row in rows}) == 3
    assert all(row["reward/errors"] == 0 and row["critic/loss"] > 0 for row in rows)
    assert rows[-1]["rollout/staleness/max"] <= 1

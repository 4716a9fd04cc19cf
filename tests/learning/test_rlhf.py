"""Reinforcement learning from preferences, whole and small: a reward model is trained on pairs of answers, and PPO on what it
says, held near the model that training began with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.learning

HERE = Path(__file__)
TARGET = 3.0
"""Nats of a response. To answer right each time takes some 6: two symbols of 27, drawn alike at first."""
SETTINGS = ["algorithm.name=ppo", "reward.name=model", "steps=45", "algorithm.kl_coef=0.5", f"algorithm.kl_target={TARGET}",
            "algorithm.kl_horizon=1000", "critic.lr=0.001"]


def run(script, *words, **more):
    done = subprocess.run([sys.executable, script, *map(str, words)], check=True, text=True, stdout=subprocess.PIPE,
                          env=os.environ | {"OMP_NUM_THREADS": "1"}, **more)
    return json.loads(done.stdout)


def test_what_a_reward_model_prefers_is_learned_near_the_reference(tmp_path):
    judge = tmp_path / "judge"
    assert run(HERE.parents[2] / "scripts/reward_model.py", judge)["accuracy"] > 0.9
    result = run(HERE.with_name("harness.py"), input=json.dumps([*SETTINGS, f"reward.path={judge}"]) + "\n")
    rewards, divergences = result["rewards"], result["divergences"]
    shown = list(zip([round(one, 2) for one in rewards[::5]], [round(one, 2) for one in divergences[::5]], strict=True))
    assert sum(rewards[-5:]) / 5 > rewards[0] + 3, shown
    assert 1 < max(divergences) < 1.5 * TARGET, shown

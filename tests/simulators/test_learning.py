"""The first steps of `configs/ppo-pushcube.yaml` in ManiSkill's PushCube-v1: it succeeds more and more often."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest

pytestmark = [pytest.mark.maniskill,
              pytest.mark.skipif(importlib.util.find_spec("mani_skill") is None, reason="mani-skill is not installed")]
CONFIG = Path(__file__).parents[2] / "configs" / "ppo-pushcube.yaml"
STEPS = 12
"""Of the configuration's 80, at the learning rate that they begin with."""


def test_pushcube_is_learned(tmp_path):
    done = subprocess.run([sys.executable, "-m", "rlinf_cli", "train", str(CONFIG), "--steps", str(STEPS), "--name", "push",
                           "trainer.schedule=constant"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "runs" / "push" / "metrics.jsonl").read_text().splitlines()
    told = [json.loads(line) for line in lines]
    successes = [row["env/success"] for row in told if row["env/episodes"] > 0]
    assert fmean(successes[:2]) < 0.1
    assert fmean(successes[-3:]) > 0.2

"""The script that trains a small reward model: pairs that say which answer is better, and a directory that rewards take."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np

from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_cli.rl.trajectory import Sample
from rlinf_rewards.config import ModelRewardConfig
from rlinf_rewards.model import ModelReward

SCRIPT = Path(__file__).parents[3] / "scripts/reward_model.py"


def module():
    spec = importlib.util.spec_from_file_location("reward_model_script", SCRIPT)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_better_answer_is_the_last_digit_and_the_worse_one_never_is():
    noise, script = random.Random(0), module()
    for _ in range(500):
        (better, ended), (worse, worse_ended) = script.pair(noise)
        prompt, _, answer = better.partition("=")
        assert ended
        assert answer == prompt[-1]
        assert worse.startswith(f"{prompt}=")
        assert not worse_ended or worse != better


def test_it_learns_to_tell_endings_and_is_a_reward_model(tmp_path):
    done = subprocess.run([sys.executable, SCRIPT, tmp_path / "m", "--steps", "20"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["accuracy"] > 0.6
    check(resolve([], ["reward.name=model", f"reward.path={tmp_path / 'm'}"], {}, load_plugins(None)))
    samples = [Sample("a", "a", np.zeros(4, np.int32), np.zeros(2, np.int32), np.ones(2, np.bool_), np.zeros(2, np.float32),
                      np.zeros(2, np.int32), finish, "d47=", text) for text, finish in (("7", "stop"), ("c,d", "length"))]
    good, bad = ModelReward(ModelRewardConfig(str(tmp_path / "m")), "cpu").score_batch(samples)
    assert good > bad

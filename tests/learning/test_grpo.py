"""GRPO learns: the reward of the built-in digits task rises from chance to above 0.9 (scenario C3)."""

import json
import os
import random
import subprocess
import sys

import pytest

pytestmark = pytest.mark.learning


def train(directory, *words, timeout=600):
    done = subprocess.run([sys.executable, "-m", "rlinf_cli", "train", *map(str, words)], cwd=directory, text=True,
                          capture_output=True, timeout=timeout, env=os.environ)
    assert done.returncode == 0, done.stderr
    (run,) = (directory / "runs").iterdir()
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_digits(tmp_path):
    """Seed 0 by the command; two others without it: test_algorithms.py."""
    rows = train(tmp_path, "--algo", "grpo")
    rewards = [row["reward/mean"] for row in rows]
    assert rewards[0] < 0.2
    assert sum(rewards[-10:]) / 10 > 0.9
    # the largest of some 150,000 tokens, improbable ones among them; N1's own tests hold 1e-5
    assert max(row["rollout/logp_diff/mean"] for row in rows) < 1e-6
    assert max(row["rollout/logp_diff/max"] for row in rows) < 1e-4


def test_smollm2_trains_on_a_gsm8k_layout_file(tmp_path):
    """A real pretrained model with its own tokenizer and chat template; the whole curve: scripts/bench/smollm2.py."""
    noise = random.Random(0)
    with (tmp_path / "additions.jsonl").open("w") as file:
        for _ in range(64):
            a, b = noise.randrange(1, 10), noise.randrange(1, 10)
            file.write(json.dumps({"question": f"What is {a} + {b}?", "answer": f"Add them.\n#### {a + b}"}) + "\n")
    rows = train(tmp_path, "--algo", "grpo", "--model", "smollm2", "--data", "additions.jsonl", "--steps", "2",
                 "reward.ended=0.2")
    assert len(rows) == 2
    assert all(row["rollout/prompt_len/mean"] > 10 for row in rows)
    assert all(row["rollout/logp_diff/max"] < 1e-3 for row in rows)
    (run,) = (tmp_path / "runs").iterdir()
    subprocess.run([sys.executable, "-m", "rlinf_cli", "export", run, "model"], cwd=tmp_path, check=True)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    words = tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}],
                                          add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ids = policy.generate(**words, max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(ids[0][words["input_ids"].shape[1]:])

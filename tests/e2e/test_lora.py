"""A run that trains an adapter: it resumes exactly, and is exported merged or as peft's own."""

import json

import pytest
import torch
from safetensors.torch import load_file

pytestmark = pytest.mark.e2e

LORA = ("trainer.lora_rank=8", "trainer.lora_targets=[q_proj,v_proj,up_proj]", "trainer.lr=0.01", "trainer.schedule=constant")
MOVED = ("actor/loss", "actor/grad_norm", "actor/entropy", "reward/mean", "rollout/response_len/mean")


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(8)[None]).logits


def test_from_the_command_to_the_exported_model(rlinf, tmp_path):
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # a reward that random weights earn, so that every step has a gradient
    (tmp_path / "mine.py").write_text("def score(response):\n    return sum(letter.isdigit() for letter in response) / 3\n")
    rlinf("train", "--algo", "grpo", "--name", "a", "--steps", "4", "--reward", "mine.py:score", "checkpoint.every=2", *LORA,
          check=True)
    run = tmp_path / "runs/a"
    before = rows(run)
    assert [row["step"] for row in before] == [1, 2, 3, 4]
    assert all(row["actor/grad_norm"] > 0 for row in before)
    # scenario N1, after the adapter has moved, too
    assert all(row["rollout/logp_diff/max"] < 1e-5 for row in before)
    checkpoint = run / "checkpoints/step_000004"
    assert {path.name for path in checkpoint.iterdir()} >= {"adapter", "optimizer.safetensors", "trainer.json"}
    assert not (checkpoint / "model").exists()
    last = load_file(checkpoint / "adapter/adapter_model.safetensors")

    rlinf("train", "--resume", "runs/a/checkpoints/step_000002", "--steps", "4", check=True)
    assert [{name: row[name] for name in MOVED} for row in rows(run)] == [{name: row[name] for name in MOVED} for row in before]
    again = load_file(checkpoint / "adapter/adapter_model.safetensors")
    assert set(again) == set(last)
    assert all(torch.equal(again[name], last[name]) for name in last)

    refused = rlinf("train", "--resume", "runs/a", "--steps", "5", "trainer.lora_rank=4")
    assert refused.returncode != 0
    assert "has rank 8 and scale 4, the trainer's adapter rank 4" in refused.stderr

    rlinf("export", "runs/a", "merged", check=True)
    rlinf("export", "runs/a", "adapter", "--adapter", check=True)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    adapter = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter", dtype=torch.float32)
    torch.testing.assert_close(logits(merged), logits(adapter), atol=1e-5, rtol=0)
    assert AutoTokenizer.from_pretrained(tmp_path / "merged")("d47=")["input_ids"]

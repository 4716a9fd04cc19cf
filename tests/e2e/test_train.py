"""`rlinf train` from the command to the exported model."""

import json

import pytest

pytestmark = pytest.mark.e2e

WORDS = ("--algo", "grpo", "--devices", "cpu:2", "checkpoint.every=2", "log.samples=2")


def lines(run, name="metrics.jsonl"):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def test_a_run_leaves_everything_that_the_docs_promise(rlinf, tmp_path):
    done = rlinf("train", *WORDS, "--name", "first", "--steps", "4", "trainer.micro_batch_tokens=64", "--json", check=True)
    run = tmp_path / "runs/first"
    metrics = lines(run)
    assert [row["step"] for row in metrics] == [1, 2, 3, 4]
    for name in ("reward/mean", "actor/loss", "actor/grad_norm", "actor/lr", "rollout/response_len/mean", "timing/step_s",
                 "timing/rollout_s", "timing/actor_s", "timing/sync_s", "throughput/tokens_per_s", "memory/peak_gb",
                 "progress/tokens"):
        assert all(isinstance(row[name], float) for row in metrics), name
    # trainer and engine agree on log-probabilities, whatever the micro-batches
    assert all(0 <= row["rollout/logp_diff/max"] < 1e-5 for row in metrics)
    samples = lines(run, "samples.jsonl")
    assert [sample["step"] for sample in samples] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert {one.name for one in (run / "logs/attempt_1").iterdir()} >= {"rollout-0.log", "actor-0.log", "reward-0.log"}
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert {one.name for one in (run / "checkpoints").iterdir()} == {"latest", "step_000002", "step_000004"}
    assert "runs/first" in done.stderr
    for hint in ("rlinf train --resume", "rlinf export"):
        assert hint in done.stderr
    result = json.loads(done.stdout)
    assert result["steps"] == 4
    assert 0 <= result["reward"] <= 1
    assert result["run"].endswith("runs/first")

    rlinf("export", "runs/first", "model", check=True)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = policy.generate(**tokenizer("d47=", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert ids.shape[1] > 4


def test_the_same_seed_gives_the_same_samples_and_rewards_wherever_they_are_made(rlinf, tmp_path):
    (tmp_path / "apart.yaml").write_text("rollout: [[0]]\nreward: [[1]]\nactor: [[1]]\n")
    for name, more in (("a", ()), ("b", ()), ("apart", ("--placement", "apart.yaml"))):
        rlinf("train", *WORDS, "--name", name, "--steps", "3", *more, check=True)
    first, second, apart = (lines(tmp_path / "runs" / name) for name in ("a", "b", "apart"))
    assert [row["reward/mean"] for row in first] == [row["reward/mean"] for row in second]
    texts = [[line["response"] for line in lines(tmp_path / "runs" / name, "samples.jsonl")] for name in ("a", "b")]
    assert texts[0] == texts[1]
    assert apart[0]["reward/mean"] == first[0]["reward/mean"]
    assert apart[0]["actor/loss"] == pytest.approx(first[0]["actor/loss"], abs=1e-6)
    assert "actor-1.log" not in {one.name for one in (tmp_path / "runs/apart/logs/attempt_1").iterdir()}


def test_dry_run_plans_and_starts_nothing(rlinf, tmp_path):
    done = rlinf("train", "--algo", "grpo", "--dry-run", "--json", check=True)
    plan = json.loads(done.stdout)
    assert plan["config"]["algorithm"]["name"] == "grpo"
    assert set(plan["placement"]) >= {"rollout", "reward", "actor"}
    assert list(tmp_path.iterdir()) == []

"""`rlinf train` from the command to the exported model."""

import json

import pytest

pytestmark = pytest.mark.e2e


CONSTANT = "trainer.schedule=constant"
"""Any other schedule depends on how many steps the run is to have."""


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_a_run_leaves_everything_that_the_docs_promise(rlinf, tmp_path):
    done = rlinf("train", "--algo", "grpo", "--name", "first", "--steps", "4", "checkpoint.every=2", "log.samples=2", check=True)
    run = tmp_path / "runs/first"
    metrics = rows(run)
    assert [row["step"] for row in metrics] == [1, 2, 3, 4]
    for name in ("reward/mean", "actor/loss", "actor/grad_norm", "actor/lr", "rollout/response_len/mean", "timing/step_s",
                 "timing/rollout_s", "timing/actor_s", "timing/sync_s", "throughput/tokens_per_s", "progress/tokens"):
        assert all(isinstance(row[name], float) for row in metrics), name
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert [sample["step"] for sample in samples] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert {one.name for one in (run / "logs/attempt_1").iterdir()} >= {"rollout-0.log", "actor-0.log", "reward-0.log"}
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
    assert {one.name for one in (run / "checkpoints").iterdir()} == {"latest", "step_000002", "step_000004"}
    assert "runs/first" in done.stderr + done.stdout
    for hint in ("rlinf train --resume", "rlinf export"):
        assert hint in done.stderr + done.stdout


def test_the_same_seed_gives_the_same_samples_and_rewards(rlinf, tmp_path):
    for name in ("a", "b"):
        rlinf("train", "--algo", "grpo", "--name", name, "--steps", "3", check=True)
    first, second = (rows(tmp_path / "runs" / name) for name in ("a", "b"))
    assert [row["reward/mean"] for row in first] == [row["reward/mean"] for row in second]
    texts = [[json.loads(line)["response"] for line in (tmp_path / "runs" / name / "samples.jsonl").read_text().splitlines()]
             for name in ("a", "b")]
    assert texts[0] == texts[1]


def test_trainer_and_engine_agree_on_log_probabilities(rlinf, tmp_path):
    rlinf("train", "--algo", "grpo", "--name", "n1", "--steps", "3", "trainer.micro_batch_tokens=64", check=True)
    assert all(0 <= row["rollout/logp_diff/max"] < 1e-5 for row in rows(tmp_path / "runs/n1"))


def test_a_placement_by_hand_gives_the_same_samples(rlinf, tmp_path):
    (tmp_path / "apart.yaml").write_text("rollout: [[0]]\nreward: [[1]]\nactor: [[1]]\n")
    rlinf("train", "--algo", "grpo", "--name", "apart", "--steps", "2", "--placement", "apart.yaml", "--devices", "cpu:2",
          check=True)
    rlinf("train", "--algo", "grpo", "--name", "shared", "--steps", "2", "--devices", "cpu:2", check=True)
    first, second = rows(tmp_path / "runs/apart"), rows(tmp_path / "runs/shared")
    assert first[0]["reward/mean"] == second[0]["reward/mean"]
    assert first[0]["actor/loss"] == pytest.approx(second[0]["actor/loss"], abs=1e-6)
    assert "actor-1.log" not in {one.name for one in (tmp_path / "runs/apart/logs/attempt_1").iterdir()}


def test_resume_goes_on_where_the_run_stopped(rlinf, tmp_path):
    rlinf("train", "--algo", "grpo", "--name", "whole", "--steps", "6", CONSTANT, check=True)
    rlinf("train", "--algo", "grpo", "--name", "parts", "--steps", "3", CONSTANT, check=True)
    rlinf("train", "--resume", "runs/parts", "--steps", "6", check=True)
    whole, parts = rows(tmp_path / "runs/whole"), rows(tmp_path / "runs/parts")
    assert [row["step"] for row in parts] == [1, 2, 3, 4, 5, 6]
    assert [row["reward/mean"] for row in parts] == [row["reward/mean"] for row in whole]
    assert [row["actor/loss"] for row in parts] == pytest.approx([row["actor/loss"] for row in whole], abs=1e-6)
    assert parts[-1]["progress/tokens"] == whole[-1]["progress/tokens"]
    again = rlinf("train", "--resume", "runs/parts")  # the run now has six steps
    assert again.returncode == 2
    assert "6 of 6 steps" in again.stderr
    assert "--steps" in again.stderr


def test_dry_run_plans_and_starts_nothing(rlinf, tmp_path):
    done = rlinf("train", "--algo", "grpo", "--dry-run", "--json", check=True)
    plan = json.loads(done.stdout)
    assert plan["config"]["algorithm"]["name"] == "grpo"
    assert set(plan["placement"]) >= {"rollout", "reward", "actor"}
    assert list(tmp_path.iterdir()) == []


def test_json_prints_one_document(rlinf):
    done = rlinf("train", "--algo", "grpo", "--name", "j", "--steps", "2", "--json", check=True)
    result = json.loads(done.stdout)
    assert result["steps"] == 2
    assert 0 <= result["reward"] <= 1
    assert result["run"].endswith("runs/j")


def test_export_loads_in_transformers_and_continues_the_prompt(rlinf, tmp_path):
    rlinf("train", "--algo", "grpo", "--name", "x", "--steps", "1", check=True)
    rlinf("export", "runs/x", "model", check=True)
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    policy = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ids = policy.generate(**tokenizer("d47=", return_tensors="pt"), max_new_tokens=3, do_sample=False)
    assert ids.shape[1] > 4

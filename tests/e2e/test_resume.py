"""A run that is stopped and resumed, or forked, is the run that it would have been."""

import json
import shutil

import pytest
from safetensors.torch import load_file

from rlinf_cli.runs.state import RunState

pytestmark = pytest.mark.e2e

COMMON = ("--devices", "cpu:1", "rollout.prompts=4", "rollout.group_size=4", "rollout.max_new_tokens=3",
          "algorithm.minibatches=2", "trainer.schedule=cosine", "trainer.warmup_steps=3", "trainer.lr=0.003",
          "log.samples=1000", "checkpoint.keep_last=100", "--reward", "spread.py:score")

OF_THE_CLOCK = ("time", "timing/", "throughput/", "memory/")


REWARD = """
def score(sample):
    if sample.id.endswith("3"):
        raise ValueError("no")
    return sum(map(ord, sample.response)) % 5 / 4
"""
"""Something to learn from in every step, and a sample of each prompt that it fails on."""


@pytest.fixture
def data(tmp_path):
    """Twenty rows: an epoch of five steps; and the reward."""
    (tmp_path / "spread.py").write_text(REWARD)
    (tmp_path / "data.jsonl").write_text("".join(json.dumps({"prompt": f"d{row + 40}=", "answer": str(row % 10)}) + "\n"
                                                 for row in range(20)))
    return "data.jsonl"


def lines(run, name):
    return [json.loads(line) for line in (run / name).read_text().splitlines()]


def trained(run):
    """All that training decides: the metrics but those of the clock, and every sample."""
    rows = [{name: value for name, value in row.items() if not name.startswith(OF_THE_CLOCK)}
            for row in lines(run, "metrics.jsonl")]
    return rows, lines(run, "samples.jsonl")


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def weights(run, step):
    """Every tensor of a checkpoint: the model's or the adapter's, and the optimiser's."""
    path = run / f"checkpoints/step_{step:06d}"
    files = {file.name: load_file(file) for file in path.rglob("*.safetensors")}
    return {(file, name): tensor.tolist() for file, tensors in files.items() for name, tensor in tensors.items()}


def test_a_stop_changes_nothing(rlinf, tmp_path, data):
    runs = tmp_path / "runs"
    rlinf("train", "--name", "whole", "--data", data, "--steps", "10", "checkpoint.every=1", "checkpoint.best=-actor/entropy",
          *COMMON, check=True)
    rows, samples = trained(runs / "whole")
    assert [row["step"] for row in rows] == list(range(1, 11))
    prompts = [[sample["id"].partition("/")[0] for sample in samples if sample["step"] == step] for step in range(1, 11)]
    for epoch, steps in enumerate((prompts[:5], prompts[5:])):
        assert {one for step in steps for one in step} == {f"{epoch}-{row}" for row in range(20)}
    least = min(rows, key=lambda row: row["actor/entropy"])["step"]
    assert (runs / "whole/checkpoints/best").read_text() == f"step_{least:06d}\n"
    assert len({row["actor/lr"] for row in rows}) == 10
    assert all(row["actor/grad_norm"] > 0 and row["reward/errors"] == 4 for row in rows)
    assert weights(runs / "whole", 9) != weights(runs / "whole", 10)
    assert all(row["memory/peak_gb"] > 0.1 for row in lines(runs / "whole", "metrics.jsonl"))

    before = contents(runs / "whole")
    for step in (1, 9):
        shutil.copytree(runs / "whole", runs / f"from-{step}")
        rlinf("train", "--resume", f"runs/from-{step}@{step}", check=True)
    rlinf("train", "--fork", "whole@5", "--name", "from-5", "checkpoint.best=", check=True)
    assert contents(runs / "whole") == before
    for step in (1, 5, 9):
        again_rows, again_samples = trained(runs / f"from-{step}")
        # the first step after the stop is generated with the restored weights: its tokens are the same ones
        assert again_rows[step] == rows[step]
        assert again_rows[step]["rollout/logp_diff/max"] < 1e-5
        assert (again_rows, again_samples) == (rows, samples)
        assert weights(runs / f"from-{step}", 10) == weights(runs / "whole", 10)
    state = RunState.of(json.loads((runs / "from-5/checkpoints/step_000010/state.json").read_text()))
    assert (state.step, state.batches, state.tokens) == (10, 10, rows[-1]["progress/tokens"])
    assert json.loads((runs / "from-5/run.json").read_text())["parent"] == {"run": str(runs / "whole"), "step": 5}

    refused = rlinf("train", "--resume", "runs/from-9")
    assert refused.returncode == 2
    assert "10 of 10 steps" in refused.stderr
    (tmp_path / data).write_text((tmp_path / data).read_text().replace("d40=", "d39="))
    other = rlinf("train", "--resume", "runs/whole@5")
    assert other.returncode == 2
    assert "rlinf train --fork runs/whole@5" in other.stderr
    shown = rlinf("runs", "compare", "whole", "from-5", "--json", check=True)
    assert list(json.loads(shown.stdout)["settings"]) == ["checkpoint.best"]


def test_an_adapter_goes_on_across_an_epoch_and_a_misfit_changes_nothing(rlinf, tmp_path, data):
    runs, lora = tmp_path / "runs", ("trainer.lora_rank=4", "trainer.lr=0.01")
    common = [word for word in COMMON if not word.startswith("trainer.lr")]
    rlinf("train", "--name", "whole", "--data", data, "--steps", "7", "checkpoint.every=1", *common, *lora, check=True)
    shutil.copytree(runs / "whole", runs / "again")
    misfit = rlinf("train", "--resume", "again@5", "trainer.lora_rank=8")
    assert misfit.returncode == 2, misfit.stderr
    assert "adapter rank 8" in misfit.stderr
    assert "Traceback" not in misfit.stderr
    rlinf("train", "--resume", "again@5", check=True)  # what was refused is forgotten
    assert trained(runs / "again") == trained(runs / "whole")
    assert weights(runs / "whole", 6) != weights(runs / "whole", 7)
    assert weights(runs / "again", 7) == weights(runs / "whole", 7)

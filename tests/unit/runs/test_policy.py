"""The policy of any checkpoint as a model directory, and its export, where an adapter was trained."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.config.sections import ModelConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.models.merge import base_checksum, load_factors, read_adapter, save_factors
from rlinf_cli.runs.checkpoints import Checkpoint, Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.export import export_model
from rlinf_cli.runs.policy import policy_directory
from rlinf_models.tiny import TinyModel


@pytest.fixture
def base(tmp_path) -> Path:
    directory = tmp_path / "base"
    directory.mkdir()
    TinyModel("digits", 0).build(directory)
    return directory


@pytest.fixture
def config(base) -> RunConfig:
    return replace(RunConfig(), model=ModelConfig(name=str(base)))


@pytest.fixture
def run(tmp_path, base) -> RunDirectory:
    """Two checkpoints: an adapter at step 10, a whole model at 20."""
    made = RunDirectory.create(tmp_path / "runs", "a", False, f"seed: 0\nmodel: {{name: {base}}}\n", {})
    torch.manual_seed(1)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32),
                           LoraConfig(r=2, lora_alpha=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.1 * torch.randn_like(parameter))
    checkpoints = Checkpoints(made.checkpoints, keep_last=9)
    with checkpoints.write(10, {}) as path:
        model.save_pretrained(path / "adapter")
        save_factors(path / "adapter", load_factors(read_adapter(path / "adapter")), base_checksum(base))
        (path / "adapter" / "README.md").unlink()
    with checkpoints.write(20, {}) as path:
        shutil.copytree(base, path / "model")
    made.close()
    return made


def at(run: RunDirectory, step: int) -> Checkpoint:
    return Checkpoints(run.checkpoints).open(step)


def logits(model) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(torch.arange(8)[None]).logits


def of_peft(run: RunDirectory) -> torch.Tensor:
    return logits(AutoPeftModelForCausalLM.from_pretrained(at(run, 10).adapter, dtype=torch.float32))


def test_a_whole_model_is_used_where_it_is(run, config, tmp_path):
    assert policy_directory(at(run, 20), config, tmp_path / "cache") == at(run, 20).model
    assert not (tmp_path / "cache").exists()


def test_an_adapter_is_merged_once(run, config, tmp_path):
    directory = policy_directory(at(run, 10), config, tmp_path / "cache")
    assert directory.parent == tmp_path / "cache"
    torch.testing.assert_close(logits(AutoModelForCausalLM.from_pretrained(directory)), of_peft(run), atol=1e-5, rtol=0)
    written = (directory / "model.safetensors").stat().st_mtime_ns
    assert policy_directory(at(run, 10), config, tmp_path / "cache") == directory
    assert (directory / "model.safetensors").stat().st_mtime_ns == written
    assert len([name for name in os.listdir(tmp_path / "cache") if not name.startswith(".")]) == 1


def test_another_adapter_is_another_copy(run, config, tmp_path):
    checkpoint = at(run, 10)
    first = policy_directory(checkpoint, config, tmp_path / "cache")
    adapter = read_adapter(checkpoint.adapter)
    save_factors(adapter.path, {name: 2 * tensor for name, tensor in load_factors(adapter).items()}, adapter.base_checksum)
    assert policy_directory(checkpoint, config, tmp_path / "cache") != first


def test_the_base_is_found_again_by_the_runs_model_name(run, base, config, tmp_path):
    moved = tmp_path / "moved"
    base.rename(moved)
    found = policy_directory(at(run, 10), replace(config, model=ModelConfig(name=str(moved))), tmp_path / "cache")
    assert (found / "config.json").is_file()
    with pytest.raises(UsageError, match="is no directory"):
        policy_directory(at(run, 10), config, tmp_path / "other-cache")


def test_a_base_that_has_changed_is_refused(run, base, config, tmp_path):
    shutil.rmtree(base)
    base.mkdir()
    TinyModel("digits", 1).build(base)
    with pytest.raises(UsageError, match="was trained on other weights than those in"):
        policy_directory(at(run, 10), config, tmp_path / "cache")


def test_a_checkpoint_with_neither(run, config, tmp_path):
    with Checkpoints(run.checkpoints, keep_last=9).write(30, {}) as path:
        (path / "optimizer.bin").write_bytes(b"x")
    with pytest.raises(UsageError, match=r"holds no Hugging Face model \(no model/config\.json\)"):
        policy_directory(at(run, 30), config, tmp_path / "cache")


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_export_merges(run, tmp_path, dtype):
    exported = export_model(run.path, tmp_path / "out", step=10, dtype=dtype)
    assert (exported.step, exported.dtype) == (10, dtype or "float32")
    assert "tokenizer.json" in exported.files
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tolerance = 1e-5 if dtype is None else 0.1
    torch.testing.assert_close(logits(model).float(), of_peft(run), atol=tolerance, rtol=0)


def test_export_of_the_adapter_alone(run, tmp_path):
    exported = export_model(run.path, tmp_path / "out", step=10, adapter=True)
    assert sorted(exported.files) == ["adapter_config.json", "adapter_model.safetensors"]
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    assert torch.equal(logits(loaded), of_peft(run))
    with pytest.raises(UsageError, match="is not empty"):
        export_model(run.path, tmp_path / "out", step=10, adapter=True)
    export_model(run.path, tmp_path / "out", step=20, overwrite=True)
    assert not (tmp_path / "out" / "adapter_config.json").exists()
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"]


@pytest.mark.parametrize(("options", "said"), [
    ({"step": 20, "adapter": True}, "has no adapter, its run trained the weights themselves: leave out --adapter"),
    ({"step": 10, "adapter": True, "dtype": "float16"},
     "an adapter is exported as it was saved: leave out --dtype, or --adapter"),
])
def test_what_does_not_go_together_is_told_and_nothing_written(run, tmp_path, options, said):
    with pytest.raises(UsageError, match=said):
        export_model(run.path, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_export_without_the_base_says_which_model_is_missing(run, base, tmp_path):
    shutil.rmtree(base)
    with pytest.raises(UsageError, match=f"model '{base}' is no directory"):
        export_model(run.path, tmp_path / "out", step=10)
    assert not (tmp_path / "out").exists()

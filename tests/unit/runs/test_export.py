from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from rlinf_cli.errors import RunError, UsageError
from rlinf_cli.runs.checkpoints import Checkpoints
from rlinf_cli.runs.directory import RunDirectory
from rlinf_cli.runs.export import export_model


def tiny_model(seed: int) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
                                        num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True))


def checkpoint(run: RunDirectory, step: int, **options) -> Path:
    with Checkpoints(run.checkpoints, keep_last=9).write(step, {"step": step}) as path:
        tiny_model(step).save_pretrained(path / "model", **options)
        (path / "model" / "tokenizer_config.json").write_text("{}")
        (path / "optimizer.bin").write_bytes(b"x" * 100)
    return run.checkpoints / f"step_{step:06d}"


@pytest.fixture
def run(tmp_path) -> RunDirectory:
    made = RunDirectory.create(tmp_path / "runs", "a", False, "", {})
    checkpoint(made, 10)
    checkpoint(made, 20)
    made.close()
    return made


@pytest.fixture
def target(tmp_path) -> Path:
    return tmp_path / "out" / "model"


def logits(model: Qwen2ForCausalLM) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(8)[None]).logits


def test_the_latest_loads_in_transformers_and_computes_the_same(run, target):
    exported = export_model(run.path, target)
    assert (exported.step, exported.dtype, exported.run, exported.directory) == (20, "float32", run.path, target)
    loaded = AutoModelForCausalLM.from_pretrained(target)
    assert torch.equal(logits(loaded), logits(tiny_model(20).eval()))


def test_all_of_the_model_and_nothing_else_is_exported(run, target):
    exported = export_model(run.path, target)
    source = run.checkpoints / "step_000020" / "model"
    assert sorted(exported.files) == sorted(os.listdir(target)) == sorted(os.listdir(source))
    for name, size in exported.files.items():
        assert (target / name).read_bytes() == (source / name).read_bytes()
        assert (target / name).stat().st_size == size
        assert (target / name).stat().st_nlink == 1


@pytest.mark.parametrize(("path", "step"), [
    ("", 10), ("checkpoints/step_000010", None), ("checkpoints/step_000010", 10)])
def test_another_step(run, target, path, step):
    exported = export_model(run.path / path, target, step)
    assert exported.step == 10
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(target)), logits(tiny_model(10).eval()))


def test_a_run_by_name(run, target):
    assert export_model("a", target, runs=run.path.parent).run == run.path


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shards", [{}, {"max_shard_size": 8000}], ids=["one file", "shards"])
def test_conversion(run, target, dtype, shards):
    source = checkpoint(run, 30, **shards)
    exported = export_model(run.path, target, dtype=dtype)
    assert exported.dtype == dtype
    before = tiny_model(30)
    after = AutoModelForCausalLM.from_pretrained(target)
    wanted = getattr(torch, dtype)
    assert after.dtype == after.config.dtype == wanted
    for (name, old), (same, new) in zip(before.named_parameters(), after.named_parameters(), strict=True):
        assert name == same
        assert torch.equal(old.to(wanted), new)
    assert json.loads((target / "config.json").read_text())["dtype"] == dtype
    if shards:
        index = json.loads((target / "model.safetensors.index.json").read_text())
        assert len(list(target.glob("*.safetensors"))) == len(list((source / "model").glob("*.safetensors"))) > 1
        tied = sum(parameter.numel() for parameter in before.parameters())
        assert index["metadata"]["total_size"] == tied * wanted.itemsize


def test_conversion_leaves_the_checkpoint_alone(run, target):
    export_model(run.path, target, dtype="bfloat16")
    Checkpoints(run.checkpoints).latest().verify(full=True)


def rewrite(run: RunDirectory, step: int, tensors: dict[str, torch.Tensor], config: dict) -> None:
    with Checkpoints(run.checkpoints, keep_last=9).write(step, {}) as path:
        (path / "model").mkdir()
        save_file(tensors, path / "model" / "model.safetensors")
        (path / "model" / "config.json").write_text(json.dumps(config))


def test_what_is_not_floating_point_keeps_its_type(run, target):
    rewrite(run, 30, {"w": torch.ones(40), "ids": torch.arange(3)}, {"model_type": "x"})
    assert export_model(run.path, target, dtype="float16").dtype == "float16"
    assert {name: tensor.dtype for name, tensor in load_file(target / "model.safetensors").items()} == {
        "w": torch.float16, "ids": torch.int64}


def test_parts_of_a_composed_model_say_so_too(run, target):
    config = {"model_type": "x", "torch_dtype": "float32", "text_config": {"dtype": "float32"}}
    rewrite(run, 30, {"w": torch.ones(4)}, config)
    export_model(run.path, target, dtype="bfloat16")
    assert json.loads((target / "config.json").read_text()) == {
        "model_type": "x", "torch_dtype": "bfloat16", "text_config": {"dtype": "bfloat16"}}


def test_values_beyond_the_range_of_a_type_are_refused(run, target):
    rewrite(run, 30, {"lm_head.weight": torch.tensor([1.0, 70_000.0])}, {"model_type": "x"})
    with pytest.raises(UsageError, match=r"lm_head.weight has values beyond the range of float16: export with --dt"):
        export_model(run.path, target, dtype="float16")
    assert not target.exists()
    export_model(run.path, target, dtype="bfloat16")


def test_an_unknown_type(run, target):
    with pytest.raises(UsageError, match=r"cannot export as 'int8': --dtype is one of float32, bfloat16, float16"):
        export_model(run.path, target, dtype="int8")


# --- what there is to export


def test_a_run_without_a_checkpoint(tmp_path, target):
    run = RunDirectory.create(tmp_path, "fresh", False, "", {})
    with pytest.raises(UsageError, match=r"run .*/fresh has no checkpoint yet: one is written every checkpoint.every"):
        export_model(run.path, target)
    assert not target.exists()


def test_an_unknown_step_lists_those_there_are(run, target):
    with pytest.raises(UsageError, match=r"no checkpoint of step 15 in .*: there are steps 10, 20"):
        export_model(run.path, target, step=15)


def test_two_steps_at_once(run, target):
    with pytest.raises(UsageError, match="is the checkpoint of step 10, but --step says 20"):
        export_model(run.path / "checkpoints" / "step_000010", target, step=20)


def test_a_damaged_checkpoint_is_not_exported(run, target):
    weights = run.checkpoints / "step_000020" / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(UsageError, match=r"step_000020 is damaged: model/model.safetensors has other content"):
        export_model(run.path, target)
    assert not target.exists()


def test_a_checkpoint_without_a_model(run, target):
    with Checkpoints(run.checkpoints).write(30, {}) as path:
        (path / "weights").write_text("x")
    with pytest.raises(UsageError, match=r"step_000030 holds no Hugging Face model \(no model/config.json\)"):
        export_model(run.path, target)


# --- where it goes


def test_an_empty_directory_is_filled_in_place(run, target, monkeypatch):
    target.mkdir(parents=True)
    monkeypatch.chdir(target)
    before = os.stat(target).st_ino
    export_model(run.path, Path("."))
    assert os.stat(target).st_ino == before
    assert "config.json" in os.listdir(".")


def test_a_directory_in_use_is_refused(run, target):
    export_model(run.path, target, step=10)
    with pytest.raises(UsageError, match=r"model is not empty: choose another directory, or .* with --overwrite"):
        export_model(run.path, target)
    assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(target)), logits(tiny_model(10).eval()))


def test_overwrite_replaces_a_model_completely(run, target):
    export_model(run.path, target, step=10)
    (target / "model-00001-of-00002.safetensors").write_bytes(b"stale")
    (target / "additional_chat_templates").mkdir()
    (target / "README.md").write_text("card")
    export_model(run.path, target, overwrite=True)
    assert sorted(os.listdir(target)) == sorted(os.listdir(run.checkpoints / "step_000020" / "model"))


def test_overwrite_of_nothing_and_of_an_empty_directory(run, target, tmp_path):
    export_model(run.path, target, overwrite=True)
    (tmp_path / "empty").mkdir()
    export_model(run.path, tmp_path / "empty", overwrite=True)
    assert (tmp_path / "empty" / "config.json").exists()


@pytest.mark.parametrize(("files", "words"), [
    ({"thesis.tex": "years of work"}, "it holds thesis.tex"),
    ({"config.json": '{"model_type": "qwen2"}', "train.py": "x"}, "it holds train.py"),
    ({"config.json": '{"model_type": "qwen2"}', "data/a.json": "x"}, "it holds data"),
    ({".rlinf-export/config.json": "{}", "thesis.tex": "years of work"}, "it holds thesis.tex"),
    ({"notes.txt": "x"}, "it has no config.json of a model"),
    ({"config.json": '{"name": "app"}', "package.json": "{}"}, "it has no config.json of a model"),
    ({"config.json": "not JSON"}, "it has no config.json of a model"),
])
def test_overwrite_never_removes_what_is_not_a_model(run, target, files, words):
    for name, text in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    with pytest.raises(UsageError) as error:
        export_model(run.path, target, overwrite=True)
    assert f"is not replaced, since it is more than an exported model ({words})" in str(error.value)
    assert {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()} == files


def test_a_file_is_no_directory(run, target):
    target.parent.mkdir()
    target.write_text("")
    with pytest.raises(UsageError, match="model is not a directory"):
        export_model(run.path, target, overwrite=True)


@pytest.mark.parametrize("place", ["checkpoints", "checkpoints/step_000020/model", "checkpoints/new"])
def test_checkpoints_cannot_be_overwritten_by_an_export(run, place):
    with pytest.raises(UsageError, match="is among the checkpoints of the run"):
        export_model(run.path, run.path / place, overwrite=True)
    Checkpoints(run.checkpoints).latest().verify(full=True)


def test_the_run_directory_may_hold_the_export(run):
    export_model(run.path, run.path / "export")
    assert AutoModelForCausalLM.from_pretrained(run.path / "export")


def test_a_place_that_cannot_be_written(run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot export to .*/file/model: not a directory"):
        export_model(run.path, tmp_path / "file" / "model")
    with pytest.raises(UsageError, match=r"cannot export to .*: file name too long"):
        export_model(run.path, tmp_path / ("x" * 300))


# --- failures while writing


@pytest.mark.parametrize("dtype", [None, "float32"])
@pytest.mark.parametrize("before", ["nothing", "an empty directory", "a model"])
def test_a_file_that_may_not_grow_leaves_what_was_there(run, target, file_limit, dtype, before):
    if before != "nothing":
        target.mkdir(parents=True)
    if before == "a model":
        export_model(run.path, target, step=10)
    with file_limit(5000), pytest.raises(RunError, match=r"cannot export to .*/model: file too large"):
        export_model(run.path, target, dtype=dtype, overwrite=True)
    if before == "nothing":
        assert not target.exists()
    elif before == "an empty directory":
        assert os.listdir(target) == []
    else:
        assert torch.equal(logits(AutoModelForCausalLM.from_pretrained(target)), logits(tiny_model(10).eval()))


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_a_full_file_system(run, small_disk, dtype):
    (small_disk / "ballast").write_bytes(b"x" * 1_030_000)
    with pytest.raises(RunError, match=r"cannot export to .*/disk/model: no space left on device"):
        export_model(run.path, small_disk / "model", dtype=dtype)
    assert os.listdir(small_disk) == ["ballast"]


def test_a_killed_export_can_be_repeated(run, target):
    (target / ".rlinf-export").mkdir(parents=True)
    (target / ".rlinf-export" / "model.safetensors").write_bytes(b"half")
    (target / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UsageError, match="is not empty"):
        export_model(run.path, target)
    export_model(run.path, target, overwrite=True)
    assert sorted(os.listdir(target)) == sorted(os.listdir(run.checkpoints / "step_000020" / "model"))


def test_config_json_goes_first_and_comes_last(run, target, monkeypatch):
    export_model(run.path, target, step=10)
    gone, come = [], []
    unlink, rename = Path.unlink, os.rename
    monkeypatch.setattr(Path, "unlink", lambda self, *args: gone.append(self.name) or unlink(self, *args))
    monkeypatch.setattr(os, "rename", lambda *paths: come.append(Path(paths[1]).name) or rename(*paths))
    export_model(run.path, target, overwrite=True)
    assert gone[0] == come[-1] == "config.json"
    assert len(gone) == len(come) == 4


def test_no_torch_is_imported_for_a_copy(run, target, python):
    process = python("import sys\nfrom pathlib import Path\nfrom rlinf_cli.runs.export import export_model\n"
                     "print(export_model(sys.argv[1], Path(sys.argv[2])).dtype, 'torch' in sys.modules)",
                     run.path, target)
    assert process.communicate(timeout=20)[0] == "float32 False\n"


def test_the_critic_is_exported_in_place_of_the_policy(run, target):
    with pytest.raises(UsageError, match="has no critic, its run trained none: leave out --critic"):
        export_model(run.path, target, critic=True)
    from transformers import AutoModelForTokenClassification, Qwen2ForTokenClassification

    model = Qwen2ForTokenClassification(Qwen2Config(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                                    num_attention_heads=2, num_key_value_heads=1, num_labels=1))
    with Checkpoints(run.checkpoints, keep_last=9).write(30, {"step": 30}) as path:
        tiny_model(30).save_pretrained(path / "model")
        model.save_pretrained(path / "critic" / "model")
    exported = export_model(run.path, target, critic=True, dtype="bfloat16")
    assert (exported.step, exported.dtype) == (30, "bfloat16")
    loaded = AutoModelForTokenClassification.from_pretrained(target, dtype=torch.float32)
    assert torch.allclose(loaded.score.weight, model.score.weight, atol=1e-2)

"""Loading: no code of the directory runs, nothing is filled with random numbers in silence."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf_cli.errors import UsageError
from rlinf_cli.models.load import load_causal_lm, load_tokenizer, stored_weights


def rewrite_weights(model, change):
    weights = load_file(model / "model.safetensors")
    change(weights)
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


def test_the_model_is_ready_for_evaluation(model):
    loaded = load_causal_lm(model, "float32")
    assert not loaded.training
    assert loaded.dtype == torch.float32
    assert load_causal_lm(model, "bfloat16").dtype == torch.bfloat16


def test_missing_weights_are_an_error(model):
    rewrite_weights(model, lambda weights: weights.pop("model.layers.1.mlp.up_proj.weight"))
    with pytest.raises(UsageError, match=r"1 tensors are missing.*model\.layers\.1\.mlp\.up_proj\.weight"):
        load_causal_lm(model, "float32")


def test_misshapen_weights_are_an_error(model):
    rewrite_weights(model, lambda weights: weights.update({"model.norm.weight": torch.ones(7)}))
    with pytest.raises((UsageError, RuntimeError), match=r"model\.norm\.weight|mismatch"):
        load_causal_lm(model, "float32")


def test_a_model_that_is_no_language_model(model):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "t5"}))
    with pytest.raises(UsageError, match="of type 't5', which is no causal language model"):
        load_causal_lm(model, "float32")


def test_code_in_the_directory_is_not_run(model):
    config = json.loads((model / "config.json").read_text())
    hooks = {"auto_map": {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}, "model_type": "evil"}
    (model / "config.json").write_text(json.dumps({**config, **hooks}))
    (model / "evil.py").write_text("raise SystemExit('code of the model directory was run')")
    with pytest.raises(UsageError, match="of type 'evil'"):
        load_causal_lm(model, "float32")


def test_stored_weights_of_one_file_and_of_shards(model):
    whole = load_file(model / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in stored_weights(model)} == {
        name: tensor.tolist() for name, tensor in whole.items()}
    names = sorted(whole)
    shards = {"one.safetensors": names[:5], "two.safetensors": names[5:]}
    for file, chosen in shards.items():
        save_file({name: whole[name] for name in chosen}, model / file)
    index = {"weight_map": {name: file for file, chosen in shards.items() for name in chosen}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert sorted(name for name, _ in stored_weights(model)) == names


def test_the_tokenizer_that_a_directory_declares(model):
    tokenizer = load_tokenizer(model)
    assert type(tokenizer).__name__ == "TokenizersBackend"
    assert tokenizer("d47=")["input_ids"] == [22, 7, 10, 16]


def test_other_tokenizers_go_through_auto_tokenizer(model):
    declared = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**declared, "tokenizer_class": "Qwen2Tokenizer"}))
    tokenizer = load_tokenizer(model)
    assert type(tokenizer).__name__ == "Qwen2Tokenizer"
    assert tokenizer("d47=")["input_ids"] == [22, 7, 10, 16]


def test_a_declared_tokenizer_needs_no_table_of_models(model):
    program = (f"import sys; from pathlib import Path; from rlinf_cli.models.load import load_tokenizer; "
               f"load_tokenizer(Path({str(model)!r})); "
               "assert not [name for name in sys.modules if name.startswith('transformers.models.auto.')]")
    subprocess.run([sys.executable, "-c", program], check=True)

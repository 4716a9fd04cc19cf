"""An adapter merged file by file is the model that peft computes with."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

from rlinf_cli.errors import UsageError
from rlinf_cli.models.check import check_directory
from rlinf_cli.models.merge import adapted, base_checksum, load_factors, merge_adapter, read_adapter, save_factors

TARGETS = ["q_proj", "v_proj", "down_proj"]


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def base(request, tmp_path):
    """A model of two shards with a tokenizer and other files."""
    torch.manual_seed(0)
    directory = tmp_path / "base"
    config = Qwen2Config(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=1, tie_word_embeddings=True)
    Qwen2ForCausalLM(config).to(request.param).save_pretrained(directory, max_shard_size=6_000)
    (directory / "tokenizer.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "X"}')
    (directory / "notes.md").write_text("mine")
    assert len(list(directory.glob("*.safetensors"))) > 1
    return directory


def load(directory, **more):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, **more).eval()


def logits(model):
    with torch.no_grad():
        return model(torch.arange(8)[None]).logits


@pytest.fixture
def written(base, tmp_path):
    """An adapter as peft itself writes it."""
    model = get_peft_model(load(base), LoraConfig(r=3, lora_alpha=5, target_modules=TARGETS, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


@pytest.fixture
def target(tmp_path):
    (tmp_path / "merged").mkdir()
    return tmp_path / "merged"


def test_it_computes_what_peft_computes(base, written, target):
    merge_adapter(base, read_adapter(written), target)
    check_directory(target)
    expected = logits(PeftModel.from_pretrained(load(base), written).eval())
    torch.testing.assert_close(logits(load(target)), expected, atol=1e-5, rtol=0)
    assert (expected - logits(load(base))).abs().max() > 0.01


def test_only_the_targets_change_and_all_is_float32(base, written, target):
    merge_adapter(base, read_adapter(written), target)
    names = {path.name for path in base.glob("*.safetensors")}
    assert {path.name for path in target.glob("*.safetensors")} == names
    changed = set()
    for name in names:
        before, after = load_file(base / name), load_file(target / name)
        assert before.keys() == after.keys()
        assert {tensor.dtype for tensor in after.values()} == {torch.float32}
        changed |= {key for key in before if not torch.equal(before[key].float(), after[key])}
    assert changed == {f"model.layers.{layer}.{part}.weight" for layer in range(2)
                       for part in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")}


def test_configuration_tokenizer_and_index_come_along(base, written, target):
    merge_adapter(base, read_adapter(written), target)
    weights = {path.name for path in base.glob("*.safetensors")}
    assert {path.name for path in target.iterdir()} == weights | {
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json"}
    assert json.loads((target / "config.json").read_text())["dtype"] == "float32"
    index = json.loads((target / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == json.loads((base / "model.safetensors.index.json").read_text())["weight_map"]
    sizes = [tensor.nbytes for name in weights for tensor in load_file(target / name).values()]
    assert index["metadata"]["total_size"] == sum(sizes)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_another_type_is_rounded_once_after_merging(base, written, target, dtype, tmp_path):
    exact = tmp_path / "exact"
    exact.mkdir()
    merge_adapter(base, read_adapter(written), exact)
    merge_adapter(base, read_adapter(written), target, dtype)
    for path in exact.glob("*.safetensors"):
        rounded = load_file(target / path.name)
        for name, tensor in load_file(path).items():
            assert torch.equal(rounded[name], tensor.to(getattr(torch, dtype)))
    assert json.loads((target / "config.json").read_text())["dtype"] == dtype


def test_what_is_not_floating_point_stays_and_all_is_aligned(tmp_path, target):
    base, written = tmp_path / "base", tmp_path / "adapter"
    base.mkdir()
    tensors = {"odd": torch.tensor([True, False, True]), "ids": torch.arange(3),
               "w.weight": torch.ones(3, 5, dtype=torch.float64),
               "half": torch.ones(3, dtype=torch.float16), "scalar": torch.tensor(2.5)}
    save_file(tensors, base / "model.safetensors")
    (base / "config.json").write_text('{"model_type": "x"}')
    write(written, {"w.weight.lora_A": torch.ones(1, 5), "w.weight.lora_B": torch.ones(3, 1)})
    merge_adapter(base, read_adapter(written), target, "bfloat16")
    merged = load_file(target / "model.safetensors")
    assert merged["odd"].tolist() == [True, False, True]
    assert merged["ids"].tolist() == [0, 1, 2]
    assert {merged[name].dtype for name in ("w.weight", "half", "scalar")} == {torch.bfloat16}
    assert merged["scalar"].item() == 2.5
    assert merged["w.weight"].tolist() == [[3.0] * 5] * 3


def write(directory, factors, base="", **config):
    directory.mkdir(exist_ok=True)
    save_factors(directory, factors, base)
    (directory / "adapter_config.json").write_text(json.dumps(
        {"peft_type": "LORA", "r": 1, "lora_alpha": 2, "base_model_name_or_path": None, **config}))


def test_factors_are_read_as_they_were_saved(tmp_path):
    factors = {"model.layers.0.mlp.up_proj.weight.lora_A": torch.randn(1, 4),
               "model.layers.0.mlp.up_proj.weight.lora_B": torch.randn(2, 1)}
    write(tmp_path / "a", factors, "abc")
    stored = read_adapter(tmp_path / "a")
    assert (stored.rank, stored.scale, stored.base_checksum) == (1, 2.0, "abc")
    loaded = load_factors(stored)
    assert loaded.keys() == factors.keys()
    assert all(torch.equal(loaded[name], factors[name]) for name in factors)
    assert set(load_file(tmp_path / "a" / "adapter_model.safetensors")) == {
        f"base_model.model.model.layers.0.mlp.up_proj.lora_{factor}.weight" for factor in "AB"}


def test_the_sum_is_made_in_float32():
    weight, a, b = torch.ones(2, 3, dtype=torch.bfloat16), torch.full((1, 3), 2.0**-10), torch.ones(2, 1)
    assert torch.equal(adapted(weight, a, b, 0.5), torch.full((2, 3), 1 + 2.0**-11))


def test_another_base_is_refused(base, tmp_path, target):
    shape = 16, 16
    factors = {"model.layers.0.self_attn.q_proj.weight.lora_A": torch.ones(1, shape[1]),
               "model.layers.0.self_attn.q_proj.weight.lora_B": torch.ones(shape[0], 1)}
    write(tmp_path / "right", factors, base_checksum(base))
    merge_adapter(base, read_adapter(tmp_path / "right"), target)
    shutil.rmtree(target)
    target.mkdir()
    write(tmp_path / "wrong", factors, "0" * 32)
    with pytest.raises(UsageError, match=r"was trained on other weights than those in .*base: put the model back"):
        merge_adapter(base, read_adapter(tmp_path / "wrong"), target)
    assert list(target.iterdir()) == []


def test_a_weight_that_the_base_lacks_is_named(base, tmp_path, target):
    name = "model.layers.7.mlp.up_proj.weight"
    write(tmp_path / "a", {f"{name}.lora_A": torch.ones(1, 2), f"{name}.lora_B": torch.ones(2, 1)})
    with pytest.raises(UsageError, match=r"changes model\.layers\.7\.mlp\.up_proj\.weight, which .*base does not have"):
        merge_adapter(base, read_adapter(tmp_path / "a"), target)


@pytest.mark.parametrize("setting", [{"use_dora": True}, {"use_rslora": True}, {"modules_to_save": ["lm_head"]}, {"bias": "all"},
                                     {"peft_type": "IA3"}])
def test_other_kinds_of_adapters_are_refused(tmp_path, setting):
    write(tmp_path / "a", {"w.weight.lora_A": torch.ones(1, 2), "w.weight.lora_B": torch.ones(2, 1)}, **setting)
    with pytest.raises(UsageError, match=r"is not plain LoRA .*: merge it with peft"):
        read_adapter(tmp_path / "a")

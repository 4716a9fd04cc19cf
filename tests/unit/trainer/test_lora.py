"""A low-rank adapter in place of the weights: what moves, how it is named, saved and taken up again."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf_cli.api import PluginError, Ranks, UsageError, weights_checksum
from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_torch.trainer import TorchTrainer
from rlinf_torch.trainer_config import TorchTrainerConfig

LORA = {"lora_rank": 4, "lora_alpha": 8.0, "lr": 1e-2}
LINEAR = [f"model.layers.{layer}.{name}.weight" for layer in range(3) for name in (
    "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
    "mlp.down_proj")]


@pytest.fixture
def trained(build, samples, make_items, grpo):
    """`trained(steps, **keys)`: a trainer after so many steps; its adapter is then far from nothing."""

    def make(steps=3, model=None, **keys):
        trainer = build(model, **{**LORA, **keys})
        for _ in range(steps):
            trainer.train_step(make_items(samples), grpo.loss, 1.0)
        return trainer

    return make


def saved(trainer, directory):
    directory.mkdir()
    trainer.save(directory)
    return directory


def likelihoods(model, sample):
    tokens = torch.from_numpy(np.concatenate([sample.prompt_ids, sample.response_ids]).astype(np.int64))
    with torch.no_grad():
        logits = model(input_ids=tokens[None]).logits[0, len(sample.prompt_ids) - 1 : -1]
    chosen = tokens[len(sample.prompt_ids) :]
    return torch.log_softmax(logits, -1)[torch.arange(len(chosen)), chosen].numpy()


def agree(trainer, model, samples, atol=1e-5):
    for sample, expected in zip(samples, trainer.log_probs(samples, 1.0), strict=True):
        np.testing.assert_allclose(likelihoods(model, sample), expected, atol=atol, rtol=0)


def test_it_begins_as_the_model_itself(build, samples):
    plain, lora = build(), build(**LORA)
    for one, other in zip(plain.log_probs(samples, 1.0), lora.log_probs(samples, 1.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_adapter_is_named_after_the_weights_that_it_changes(build):
    trainer = build(**LORA)
    adapter, factors = trainer.adapter(), dict(trainer.adapter_weights())
    assert (adapter.rank, adapter.scale) == (4, 2.0)
    assert sorted(adapter.targets) == sorted(LINEAR)
    assert factors.keys() == {f"{name}.{factor}" for name in LINEAR for factor in ("lora_A", "lora_B")}
    for name, weight in trainer.named_weights():
        if name in adapter.targets:
            assert factors[f"{name}.lora_A"].shape == (4, weight.shape[1])
            assert factors[f"{name}.lora_B"].shape == (weight.shape[0], 4)
    assert not any(tensor.requires_grad for tensor in factors.values())
    assert build().adapter() is None
    assert list(build().adapter_weights()) == []


def test_only_the_factors_move(trained, make_model, tmp_path):
    trainer = trained()
    stored = load_file(make_model() / "model.safetensors")
    merged = dict(trainer.named_weights())
    assert merged.keys() == stored.keys()
    moved = {name for name in stored if not torch.equal(merged[name], stored[name])}
    assert moved == set(LINEAR)
    moments = load_file(saved(trainer, tmp_path / "c") / "optimizer.safetensors")
    assert moments.keys() == {f"{name}.{moment}" for name, _ in trainer.adapter_weights()
                              for moment in ("exp_avg", "exp_avg_sq")}


@pytest.mark.parametrize(("model_type", "more"), [("qwen2", {}), ("llama", {"attention_bias": True, "tie_word_embeddings": True}),
                                                  ("qwen3", {}), ("gpt_neox", {})])
def test_the_merged_weights_are_the_policy(trained, make_model, samples, model_type, more):
    """Scenario N1, and W1 for tied embeddings."""
    from transformers import AutoModelForCausalLM

    directory = make_model(model_type, **more)
    trainer = trained(model=directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    before = likelihoods(model, samples[0])
    merged = dict(trainer.named_weights())
    found = model.load_state_dict(merged, strict=False)
    assert found.unexpected_keys == []
    assert set(found.missing_keys) <= {"lm_head.weight"}
    assert np.abs(likelihoods(model, samples[0]) - before).max() > 0.05
    agree(trainer, model, samples)


def test_peft_loads_what_is_saved(trained, make_model, samples, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    trainer = trained()
    directory = saved(trainer, tmp_path / "c")
    assert {path.name for path in directory.iterdir()} == {"adapter", "optimizer.safetensors", "trainer.json"}
    assert {path.name for path in (directory / "adapter").iterdir()} == {"adapter_model.safetensors", "adapter_config.json"}
    base = AutoModelForCausalLM.from_pretrained(make_model(), dtype=torch.float32)
    agree(trainer, PeftModel.from_pretrained(base, directory / "adapter").eval(), samples, atol=1e-6)
    assert json.loads((directory / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"] == str(make_model())


@pytest.mark.parametrize("stop", [0, 1, 3])
def test_going_on_after_loading_is_exact(build, trained, samples, make_items, grpo, tmp_path, stop):
    keys = {"schedule": "cosine", "warmup_steps": 2, "weight_decay": 0.1, "total_steps": 8}
    items = make_items(samples)
    straight = trained(0, **keys)
    expected = [straight.train_step(items, grpo.loss, 1.0) for _ in range(5)]
    directory = saved(trained(stop, **keys), tmp_path / "c")
    torch.manual_seed(5)  # another beginning, which is forgotten
    second = trained(1, **keys)
    second.load(directory)
    assert [second.train_step(items, grpo.loss, 1.0) for _ in range(stop, 5)] == expected[stop:]
    assert weights_checksum(second.adapter_weights()) == weights_checksum(straight.adapter_weights())


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_the_seed_decides_the_beginning_and_is_not_used_up(build):
    torch.manual_seed(3)
    one = weights_checksum(build(**LORA).adapter_weights())
    torch.rand(5)
    state = torch.get_rng_state()
    assert weights_checksum(build(**LORA).adapter_weights()) == one
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    assert weights_checksum(build(**LORA).adapter_weights()) != one


@pytest.mark.parametrize(("keys", "said"), [
    ({"lora_rank": 8}, r"has rank 4 and scale 2, the trainer's adapter rank 8 and scale 1"),
    ({"lora_alpha": 4.0}, r"has rank 4 and scale 2, the trainer's adapter rank 4 and scale 1 \(lora_alpha / lora_rank\)"),
    ({"lora_targets": ["q_proj"]},
     r"does not fit the trainer's model \(left over: model\.layers\.0\.mlp\.down_proj\.weight\.lora_A"),
    ({"lora_rank": 0}, r"has no model/: set trainer\.lora_rank to that of the run that wrote it"),
])
def test_other_settings_do_not_fit(build, trained, tmp_path, keys, said):
    directory = saved(trained(1), tmp_path / "c")
    other = build(**{**LORA, **keys})
    before = weights_checksum(other.named_weights())
    with pytest.raises(ValueError, match=said):
        other.load(directory)
    assert weights_checksum(other.named_weights()) == before


def test_weights_are_no_adapter(build, tmp_path):
    with pytest.raises(ValueError, match=r"has no adapter/: .* resume it with trainer\.lora_rank=0"):
        build(**LORA).load(saved(build(), tmp_path / "c"))


def test_another_base_does_not_fit(build, trained, make_model, tmp_path):
    directory = saved(trained(1), tmp_path / "c")
    with pytest.raises(ValueError, match=r"was trained on other weights than those of .*: resume with the model that the run"):
        build(make_model(seed=1), **LORA).load(directory)


def test_misfits_are_named_and_change_nothing(trained, tmp_path):
    trainer = trained(2)
    directory = saved(trainer, tmp_path / "c")
    tensors = load_file(directory / "optimizer.safetensors")
    del tensors[f"{LINEAR[0]}.lora_B.exp_avg"]
    save_file(tensors, directory / "optimizer.safetensors")
    other = trained(1)
    before = weights_checksum(other.adapter_weights())
    with pytest.raises(ValueError, match=r"missing: model\.layers\.0\.self_attn\.q_proj\.weight\.lora_B\.exp_avg\)"):
        other.load(directory)
    assert weights_checksum(other.adapter_weights()) == before


@pytest.mark.parametrize(("targets", "expected"), [
    (["q_proj", "v_proj"], [name for name in LINEAR if "q_proj" in name or "v_proj" in name]),
    (["self_attn.o_proj"], [name for name in LINEAR if "o_proj" in name]),
    (["layers.1.mlp.up_proj"], ["model.layers.1.mlp.up_proj.weight"]),
])
def test_targets(build, targets, expected):
    assert sorted(build(**LORA, lora_targets=targets).adapter().targets) == sorted(expected)


@pytest.mark.parametrize("target", ["lm_head", "qproj", "embed_tokens", "q_pro"])
def test_a_target_that_is_no_linear_layer_of_the_decoder(build, target):
    with pytest.raises(UsageError, match=rf"trainer\.lora_targets has '{target}', but the linear layers of this model's "
                                         "decoder are down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj"):
        build(**LORA, lora_targets=["q_proj", target])


def test_the_gradient_does_not_depend_on_micro_batches(build, samples, make_items, grpo, tmp_path):
    """Scenario N4, with padding, shared prompts and recomputation."""
    results = []
    for number, keys in enumerate(({}, {"micro_batch_tokens": 1}, {"micro_batch_tokens": 40, "activations": "recompute"})):
        trainer = build(**LORA, max_grad_norm=1e9, **keys)
        # B is 0 at first, and with it the gradient of A
        for name, tensor in trainer.adapter_weights():
            tensor.add_(0.01 * torch.sin(torch.arange(tensor.numel()).view(tensor.shape) + len(name)))
        metrics = trainer.train_step(make_items(samples), grpo.loss, 1.0)
        moments = load_file(saved(trainer, tmp_path / f"{number}") / "optimizer.safetensors")
        results.append((metrics, torch.cat([moments[name].flatten() for name in sorted(moments) if name.endswith("exp_avg")])))
    for metrics, got in results:
        assert float((got - results[0][1]).norm() / results[0][1].norm()) < 2e-6
        assert metrics == pytest.approx(results[0][0], rel=1e-5, abs=1e-7)


def test_on_policy_the_mismatch_is_only_rounding(trained, samples, make_items, grpo):
    trainer = trained(micro_batch_tokens=30)
    own = [dataclasses.replace(sample, logprobs=logprobs)
           for sample, logprobs in zip(samples, trainer.log_probs(samples, 0.7), strict=True)]
    assert trainer.train_step(make_items(own), grpo.loss, 0.7)["actor/logp_diff_max"] < 1e-5


def test_bfloat16_keeps_the_factors_in_float32(trained):
    trainer = trained(2, dtype="bfloat16")
    assert {tensor.dtype for _, tensor in (*trainer.adapter_weights(), *trainer.named_weights())} == {torch.float32}


@pytest.fixture
def in_bfloat16(make_model, tmp_path):
    """The model stored in bfloat16, as most are."""
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(make_model(), dtype=torch.bfloat16).save_pretrained(tmp_path / "half")
    return tmp_path / "half"


def test_frozen_matrices_in_bfloat16_compute_the_same_in_half_the_memory(trained, in_bfloat16, samples):
    keys = {"model": in_bfloat16, "dtype": "bfloat16", "lora_targets": ["q_proj", "up_proj"]}
    wide, narrow = trained(3, **keys), trained(3, **keys, frozen_dtype="bfloat16")
    assert weights_checksum(narrow.adapter_weights()) == weights_checksum(wide.adapter_weights())
    assert weights_checksum(narrow.named_weights()) == weights_checksum(wide.named_weights())
    for one, other in zip(narrow.log_probs(samples, 1.0), wide.log_probs(samples, 1.0), strict=True):
        np.testing.assert_array_equal(one, other)
    sizes = [sum(parameter.nbytes for name, parameter in trainer._policy.model.named_parameters()
                 if name.endswith("proj.weight") or "base_layer.weight" in name) for trainer in (wide, narrow)]
    assert sizes[0] == 2 * sizes[1] > 0


def test_a_reference_in_bfloat16_computes_the_same(in_bfloat16, samples):
    wide, narrow = (TorchTrainer(TorchTrainerConfig(dtype="bfloat16", frozen_dtype=frozen), in_bfloat16, "cpu", Ranks(), 0)
                    for frozen in ("float32", "bfloat16"))
    for one, other in zip(narrow.log_probs(samples, 1.0), wide.log_probs(samples, 1.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_trained_is_never_rounded(build, samples, make_items, grpo):
    trainer = build(dtype="bfloat16", frozen_dtype="bfloat16", train_layers=1)
    trainer.train_step(make_items(samples), grpo.loss, 1.0)
    assert {tensor.dtype for _, tensor in trainer.named_weights()} == {torch.float32}


def test_offloading_and_onloading_keep_the_state(trained, samples, make_items, grpo):
    moved, still = trained(1), trained(1)
    moved.offload()
    moved.onload()
    again, undisturbed = (one.train_step(make_items(samples), grpo.loss, 1.0) for one in (moved, still))
    assert again == undisturbed


def test_a_reference_has_no_adapter_and_no_optimiser(make_model, samples, make_items, grpo, build, tmp_path):
    config = TorchTrainerConfig(**LORA)
    reference = TorchTrainer(config, make_model(), "cpu", Ranks(), 0)
    assert reference.adapter() is None
    for one, other in zip(reference.log_probs(samples, 1.0), build().log_probs(samples, 1.0), strict=True):
        np.testing.assert_array_equal(one, other)
    reference.offload()
    reference.onload()
    with pytest.raises(ValueError, match="built with total_steps=0: its model is never trained"):
        reference.train_step(make_items(samples), grpo.loss, 1.0)


@pytest.mark.parametrize(("keys", "said"), [
    ({"lora_rank": 8, "train_layers": 2}, "trainer.lora_rank=8 and trainer.train_layers=2 contradict each other"),
    ({"lora_targets": ["q_proj"]}, "trainer.lora_targets is set, but trainer.lora_rank is 0"),
    ({"frozen_dtype": "bfloat16"}, "trainer.frozen_dtype=bfloat16 needs trainer.dtype=bfloat16"),
])
def test_contradictions(keys, said):
    [problem] = TorchTrainerConfig(**keys).problems()
    assert problem.startswith(said)
    assert list(TorchTrainerConfig(lora_rank=8, lora_targets=["q_proj"]).problems()) == []


def test_without_peft_the_run_does_not_start(monkeypatch):
    config = resolve([], ["trainer.lora_rank=8"], {}, load_plugins(third_party=False))
    check(config)
    monkeypatch.setattr("rlinf_torch.trainer_config.find_spec", lambda name: None)
    with pytest.raises(PluginError, match=r"trainer\.lora_rank=8 needs peft, not installed here; "
                                          r"run: pip install 'rlinf-cli\[lora\]'"):
        check(config)
    assert PluginError.exit_code == 3
    check(resolve([], [], {}, load_plugins(third_party=False)))

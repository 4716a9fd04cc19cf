"""config.json is read as transformers reads it, or left to transformers."""

import json

import pytest
import torch
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from rlinf_torch.architecture import read_architecture, rotations

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}


def config(model_type="qwen2", **more):
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    return {"model_type": model_type, "architectures": [f"{names.get(model_type, 'X')}ForCausalLM"], "vocab_size": 9,
            "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4,
            "head_dim": 16, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 512,
            "hidden_act": "silu", **more}


@pytest.mark.parametrize(("model_type", "more", "expected"), [
    ("llama", {}, {"qkv_bias": False, "output_bias": False, "mlp_bias": False, "qk_norm": False, "tied": False}),
    ("llama", {"attention_bias": True, "mlp_bias": True}, {"qkv_bias": True, "output_bias": True, "mlp_bias": True}),
    ("qwen2", {"tie_word_embeddings": True}, {"qkv_bias": True, "output_bias": False, "tied": True}),
    ("qwen3", {}, {"qkv_bias": False, "qk_norm": True, "head_dim": 16}),
    ("qwen3", {"attention_bias": True}, {"qkv_bias": True, "output_bias": True}),
    ("llama", {"head_dim": None}, {"head_dim": 8}),
])
def test_what_families_have(model_type, more, expected):
    found = read_architecture(config(model_type, **more))
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("more", [
    {"model_type": "mistral"}, {"architectures": ["Qwen2ForSequenceClassification"]}, {"hidden_act": "gelu"},
    {"use_sliding_window": True}, {"layer_types": ["sliding_attention"]}, {"quantization_config": {"bits": 4}},
    {"rope_scaling": {"type": "yarn", "factor": 4.0}}, {"rope_parameters": {"rope_theta": 1e4, "rope_type": "dynamic"}},
    {"partial_rotary_factor": 0.5, "rope_parameters": {"partial_rotary_factor": 0.5}},
    {"num_key_value_heads": None}, {"rms_norm_eps": None},
    {"rope_parameters": {"full_attention": {"rope_theta": 1e4}}, "layer_types": ["full_attention", "other"]},
])
def test_what_is_left_to_transformers(more):
    assert read_architecture(config(**more)) is None


def test_qwen3_without_its_head_size_is_left_to_transformers():
    assert read_architecture(config("qwen3", head_dim=None)) is None


@pytest.mark.parametrize("rope", [
    {"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, {"rope_theta": 5e5}, {},
    {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4.0}},
    {"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}},
    {"rope_parameters": {"rope_theta": 5e5, **LLAMA3}}, {"rope_theta": 5e5, "rope_scaling": LLAMA3},
    {"rope_theta": 5e5, "rope_scaling": {**LLAMA3, "original_max_position_embeddings": 128}},
])
def test_rotations_are_those_of_transformers(rope, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config("llama", **rope)))
    theirs = AutoConfig.from_pretrained(tmp_path)
    kind = theirs.rope_parameters["rope_type"]
    if kind == "default":
        frequencies = 1 / theirs.rope_parameters["rope_theta"] ** (torch.arange(0, 16, 2) / 16)
    else:
        frequencies = ROPE_INIT_FUNCTIONS[kind](theirs, None)[0]
    architecture = read_architecture(config("llama", **rope))
    found = rotations(architecture, 512, torch.device("cpu"))
    assert found.shape == (512, 8)
    angles = torch.arange(512)[:, None].double() * frequencies.double()
    torch.testing.assert_close(found.real.double(), angles.cos(), atol=1e-4, rtol=0)
    torch.testing.assert_close(found.imag.double(), angles.sin(), atol=1e-4, rtol=0)

"""What the engine's own decoder needs to know of a model, read from config.json without `transformers`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

_FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_NEEDED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
           "num_key_value_heads", "rms_norm_eps", "max_position_embeddings")


@dataclass(frozen=True)
class Architecture:
    """A decoder of the Llama kind: RMS norms, rotary positions, grouped queries, gated MLP."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    longest: int
    """Positions that the model was made for."""
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope: Mapping[str, Any]


def read_architecture(config: Mapping[str, Any]) -> Architecture | None:
    """The architecture that a config.json describes; None for what the own decoder does not cover."""
    family = config.get("model_type", "")
    if not _is_covered(config, family):
        return None
    bias = bool(config.get("attention_bias", False))
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    return Architecture(
        config["vocab_size"], hidden, config["intermediate_size"], config["num_hidden_layers"], heads,
        config["num_key_value_heads"], config.get("head_dim") or hidden // heads, config["rms_norm_eps"],
        config["max_position_embeddings"], tied=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=bias or family == "qwen2", output_bias=bias and family != "qwen2",
        mlp_bias=family == "llama" and bool(config.get("mlp_bias", False)), qk_norm=family == "qwen3",
        rope=_rope(config))


def _is_covered(config: Mapping[str, Any], family: str) -> bool:
    layers = set(config.get("layer_types") or ["full_attention"])
    return (config.get("architectures") == [_FAMILIES.get(family)] and all(config.get(name) for name in _NEEDED)
            and (family != "qwen3" or bool(config.get("head_dim"))) and config.get("hidden_act") == "silu"
            and not config.get("quantization_config") and not config.get("use_sliding_window")
            and layers == {"full_attention"} and _rope(config).get("rope_type") in _FREQUENCIES
            and _rope(config).get("partial_rotary_factor", 1) == 1)


def _rope(config: Mapping[str, Any]) -> dict[str, Any]:
    """The rotary parameters in one form; older files have them under `rope_scaling`, the base apart."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = given.get("rope_type", given.get("type", "default"))
    known = {"rope_theta": config.get("rope_theta", 10000.0),
             "original_max_position_embeddings": config.get("max_position_embeddings")}
    return {**known, **given, "rope_type": kind}


def rotations(architecture: Architecture, length: int, device: torch.device) -> Tensor:
    """cos + i sin of the rotary angle of each position and frequency, complex64 [length, head_dim / 2]."""
    steps = torch.arange(0, architecture.head_dim, 2, dtype=torch.int64).float()
    plain = 1.0 / (architecture.rope["rope_theta"] ** (steps / architecture.head_dim))
    frequencies = _FREQUENCIES[architecture.rope["rope_type"]](plain, architecture.rope)
    angles = torch.arange(length).float()[:, None] * frequencies
    return torch.complex(angles.cos(), angles.sin()).to(device)


def _default(frequencies: Tensor, rope: Mapping[str, Any]) -> Tensor:
    return frequencies


def _linear(frequencies: Tensor, rope: Mapping[str, Any]) -> Tensor:
    return frequencies / float(rope["factor"])


def _llama3(frequencies: Tensor, rope: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's: waves longer than the original context are stretched, short ones kept, those between blended."""
    turns = float(rope["original_max_position_embeddings"]) * frequencies / (2 * math.pi)
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / float(rope["factor"])


_FREQUENCIES = {"default": _default, "linear": _linear, "llama3": _llama3}

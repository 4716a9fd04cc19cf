"""A GGUF file's model in the terms of `transformers`: its config.json, and the name and shape of each tensor there."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from rlinf_cli.errors import UsageError
from rlinf_cli.models.gguf.file import GGUFFile

FAMILIES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
_ENDS = {"bos_token_id": "bos_token_id", "eos_token_id": "eos_token_id", "pad_token_id": "padding_token_id"}
_ALTERING = ("expert_count", "attention.scale", "attention.sliding_window", "attention.clamp_kqv",
             "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "embedding_scale", "residual_scale")
"""Settings under which a model computes something else than the family's plain decoder."""
_ROPE_KNOWN = {"type", "factor", "original_context_length", "finetuned"}
_ROPE_FACTORS = "rope_freqs.weight"
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""What all Llama models since 3.1 have; files hold the factors that follow from it."""


def configuration(file: GGUFFile) -> dict[str, Any]:
    """The config.json. Raises UsageError for a model that `transformers` would compute in another way."""
    family = supported_family(file)
    embedding = _tensor_shape(file, "token_embd.weight")
    heads = _number(file, "attention.head_count")
    head_dim = _head_dim(file, heads)
    config = {
        "architectures": [FAMILIES[family]], "model_type": family, "vocab_size": embedding[0],
        "hidden_size": _number(file, "embedding_length"), "intermediate_size": _number(file, "feed_forward_length"),
        "num_hidden_layers": _number(file, "block_count"), "num_attention_heads": heads,
        "num_key_value_heads": _number(file, "attention.head_count_kv", heads), "head_dim": head_dim,
        "hidden_act": "silu", "max_position_embeddings": _number(file, "context_length"),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "rms_norm_eps": _decimal(_number(file, "attention.layer_norm_rms_epsilon")),
        "rope_parameters": _rope(file, head_dim),
    }
    if family == "qwen2":
        return {**config, "use_sliding_window": False, **_ends(file)}
    config["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
    if family == "llama":
        config["mlp_bias"] = "blk.0.ffn_up.bias" in file.tensors
    return {**config, **_ends(file)}


def supported_family(file: GGUFFile) -> str:
    """Raises UsageError for what is no complete model of one of `FAMILIES`."""
    family, path = file.metadata.get("general.architecture"), file.path
    if file.metadata.get("general.type", "model") != "model":
        raise UsageError(f"{path} holds no model but a part of one ({file.metadata['general.type']}): give the model's file")
    if file.metadata.get("split.count", 1) > 1:
        raise UsageError(f"{path} is one of {file.metadata['split.count']} parts: join them with "
                         "llama-gguf-split --merge")
    if family not in FAMILIES:
        raise UsageError(f"{path} holds a model of architecture {family!r}: GGUF files of {', '.join(FAMILIES)} can be "
                         "used, of others the Hugging Face directory")
    altered = [name for name in _ALTERING if file.metadata.get(f"{family}.{name}")]
    if altered:
        raise UsageError(f"{path} is no plain {family} model, as it sets {family}.{altered[0]}: give its Hugging Face "
                         "directory")
    return str(family)


def layout(config: Mapping[str, Any]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """GGUF's name -> Hugging Face's name and the shape, of every tensor of a model."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "token_embd.weight": ("model.embed_tokens.weight", (vocabulary, hidden)),
        "output_norm.weight": ("model.norm.weight", (hidden,))}
    if not config["tie_word_embeddings"]:
        found["output.weight"] = ("lm_head.weight", (vocabulary, hidden))
    parts = _layer(config)
    for layer in range(config["num_hidden_layers"]):
        found |= {f"blk.{layer}.{name}": (f"model.layers.{layer}.{other}", shape) for name, other, shape in parts}
    return found


def check_tensors(file: GGUFFile, config: Mapping[str, Any]) -> None:
    """Raises UsageError when the file's tensors are not exactly those of `layout`."""
    path, layers = file.path, config["num_hidden_layers"]
    if layers > len(file.tensors):
        raise UsageError(f"{path} has {layers} layers by its metadata, but {len(file.tensors)} tensors: fetch it again")
    expected = layout(config)
    for name, (_, shape) in expected.items():
        if name not in file.tensors:
            raise UsageError(f"{path} lacks the tensor {name}: convert the model again")
        if file.tensors[name].shape != shape:
            raise UsageError(f"{path}: {name} has shape {list(file.tensors[name].shape)}, but by the metadata "
                             f"{list(shape)}: convert the model again")
    more = sorted(file.tensors.keys() - expected.keys() - {_ROPE_FACTORS})
    if more:
        raise UsageError(f"{path} has a tensor {more[0]}, which a {config['model_type']} model of transformers does not "
                         "have: give its Hugging Face directory")


def _layer(config: Mapping[str, Any]) -> list[tuple[str, str, tuple[int, ...]]]:
    """GGUF's name, Hugging Face's name and the shape, of the tensors of one layer."""
    hidden, inner, head_dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    query, key = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    family, biased = config["model_type"], config.get("attention_bias", False)
    linear = [  # name, Hugging Face's, outputs, inputs, whether it has a bias
        ("attn_q", "self_attn.q_proj", query, hidden, biased or family == "qwen2"),
        ("attn_k", "self_attn.k_proj", key, hidden, biased or family == "qwen2"),
        ("attn_v", "self_attn.v_proj", key, hidden, biased or family == "qwen2"),
        ("attn_output", "self_attn.o_proj", hidden, query, biased),
        ("ffn_gate", "mlp.gate_proj", inner, hidden, config.get("mlp_bias", False)),
        ("ffn_up", "mlp.up_proj", inner, hidden, config.get("mlp_bias", False)),
        ("ffn_down", "mlp.down_proj", hidden, inner, config.get("mlp_bias", False)),
    ]
    norms = [("attn_norm", "input_layernorm", hidden), ("ffn_norm", "post_attention_layernorm", hidden)]
    if family == "qwen3":
        norms += [("attn_q_norm", "self_attn.q_norm", head_dim), ("attn_k_norm", "self_attn.k_norm", head_dim)]
    found: list[tuple[str, str, tuple[int, ...]]] = [
        (f"{name}.weight", f"{other}.weight", (rows, columns)) for name, other, rows, columns, _ in linear]
    found += [(f"{name}.bias", f"{other}.bias", (rows,)) for name, other, rows, _, has_bias in linear if has_bias]
    return found + [(f"{name}.weight", f"{other}.weight", (size,)) for name, other, size in norms]


def _head_dim(file: GGUFFile, heads: int) -> int:
    found = _number(file, "attention.key_length", _number(file, "embedding_length") // heads)
    rotated = _number(file, "rope.dimension_count", found)
    if rotated != found or _number(file, "attention.value_length", found) != found:
        raise UsageError(f"{file.path} rotates {rotated} of {found} numbers of a head, or has values of another size than "
                         "keys: give its Hugging Face directory")
    return int(found)


def _rope(file: GGUFFile, head_dim: int) -> dict[str, Any]:
    """The `rope_parameters` of the config.json."""
    base = {"rope_theta": float(_number(file, "rope.freq_base", 10000.0))}
    kind, factor = _optional(file, "rope.scaling.type", "linear"), _optional(file, "rope.scaling.factor", 1.0)
    prefix = f"{file.metadata['general.architecture']}.rope.scaling."
    others = sorted({name.removeprefix(prefix) for name in file.metadata if name.startswith(prefix)} - _ROPE_KNOWN)
    if _ROPE_FACTORS in file.tensors:
        return {**base, **_llama3(file, head_dim, base["rope_theta"])}
    if kind == "none" or factor in (0, 1):
        return {"rope_type": "default", **base}
    if kind == "linear" and not others:
        return {"rope_type": "linear", "factor": _decimal(factor), **base}
    if kind == "yarn" and not others:
        return {"rope_type": "yarn", "factor": _decimal(factor), **base,
                "original_max_position_embeddings": _number(file, "rope.scaling.original_context_length")}
    raise UsageError(f"{file.path} scales rotary positions in a way that is not supported ({kind}"
                     f"{''.join(f', {name}' for name in others)}): give its Hugging Face directory")


def _llama3(file: GGUFFile, head_dim: int, base: float) -> dict[str, Any]:
    """From the factors that the file's frequencies are divided by, when they are those of Llama 3.1 and later."""
    content = file.content(_ROPE_FACTORS)
    stored = struct.unpack(f"<{len(content) // 4}f", content)
    rope = {"rope_type": "llama3", "factor": _decimal(max(stored, default=1.0)), **_LLAMA3}
    expected = [_llama3_factor(base ** (-2 * place / head_dim), rope) for place in range(len(stored))]
    if 2 * len(stored) != head_dim or not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(stored, expected)):
        raise UsageError(f"{file.path}: {_ROPE_FACTORS} does not hold the factors of Llama 3: give its Hugging Face "
                         "directory")
    return rope


def _llama3_factor(frequency: float, rope: Mapping[str, Any]) -> float:
    low, high = float(rope["low_freq_factor"]), float(rope["high_freq_factor"])
    turns = float(rope["original_max_position_embeddings"]) * frequency / (2 * math.pi)
    kept = min(max((turns - low) / (high - low), 0.0), 1.0)
    return 1 / (kept + (1 - kept) / float(rope["factor"]))


def _ends(file: GGUFFile) -> dict[str, Any]:
    found = {name: file.metadata.get(f"tokenizer.ggml.{other}") for name, other in _ENDS.items()}
    return {name: number for name, number in found.items() if number is not None}


def _tensor_shape(file: GGUFFile, name: str) -> tuple[int, ...]:
    if name not in file.tensors:
        raise UsageError(f"{file.path} lacks the tensor {name}: convert the model again")
    return file.tensors[name].shape


def _number(file: GGUFFile, name: str, default: Any = None) -> Any:
    """A number of the family's own metadata. Raises UsageError when it is missing, or a list (one for each layer)."""
    found = _optional(file, name, default)
    if not isinstance(found, (int, float)) or found <= 0:
        what = "no number" if found is None else "no single positive number"
        raise UsageError(f"{file.path} has {what} for {file.metadata['general.architecture']}.{name}: give the model's Hugging "
                         "Face directory")
    return found


def _optional(file: GGUFFile, name: str, default: Any) -> Any:
    return file.metadata.get(f"{file.metadata['general.architecture']}.{name}", default)


def _decimal(value: float) -> float:
    """The short number that was stored as a float32."""
    return float(f"{value:.6g}")

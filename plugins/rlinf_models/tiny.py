"""`tiny:VARIANT`: models of the known families, small enough to learn from random weights in seconds on a CPU.

`tiny:digits` is `tiny:qwen2`, the default model. All share the size, the characters and their tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.api import UsageError, write_model, write_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

CHARACTERS = "0123456789+-*=<>scrd ,?."
"""The 24 symbols of the built-in tasks; any other character is dropped."""
SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE, LONGEST = 128, 2, 4, 2, 512, 2048
VOCABULARY = len(SPECIAL) + len(CHARACTERS)
SPREAD = 0.02
"""Standard deviation of the random matrices, that of all the families."""


@dataclass(frozen=True)
class Family:
    """What sets a family of decoders apart from the others."""

    config: Mapping[str, Any]
    """Its own part of config.json."""
    qkv_bias: bool = False
    qk_norm: bool = False

    @property
    def head_dim(self) -> int:
        return int(self.config.get("head_dim", HIDDEN // HEADS))


_QWEN = {"rms_norm_eps": 1e-6, "use_sliding_window": False, "tie_word_embeddings": True}
_LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "rms_norm_eps": 1e-5, "head_dim": HIDDEN // HEADS}
FAMILIES = {
    "qwen2": Family({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **_QWEN}, qkv_bias=True),
    # as in Qwen3-0.6B, the heads together are wider than the hidden state
    "qwen3": Family({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "head_dim": 64, **_QWEN}, qk_norm=True),
    "llama": Family({**_LLAMA, "tie_word_embeddings": False}),
    "smollm": Family({**_LLAMA, "tie_word_embeddings": True}),
}
VARIANTS = {"digits": "qwen2", **{name: name for name in FAMILIES}}
"""What may follow `tiny:` -> its family."""


class TinyModel:
    """Source of `tiny` (which is `tiny:digits`) and `tiny:VARIANT`: random weights, a function of the seed."""

    def __init__(self, variant: str, seed: int) -> None:
        if variant and variant not in VARIANTS:
            known = ", ".join(f"tiny:{name}" for name in VARIANTS)
            raise UsageError(f"model 'tiny:{variant}' does not exist: there are {known}")
        self._name, self._seed = VARIANTS[variant or "digits"], seed

    def key(self) -> str:
        return f"tiny-{'digits' if self._name == 'qwen2' else self._name}-seed{self._seed}-v1"

    def build(self, directory: Path) -> None:
        family = FAMILIES[self._name]
        write_model(directory, configuration(family), random_weights(family, self._seed).items())
        # an unk_token of its own would be a 28th token to the Qwen2 tokenizer class
        write_tokenizer(directory, tokenizer(), {**SPECIAL, "unk_token": SPECIAL["pad_token"]}, LONGEST)


def configuration(family: Family) -> dict[str, Any]:
    return {
        "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "intermediate_size": INTERMEDIATE, "hidden_act": "silu",
        "max_position_embeddings": LONGEST, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, **family.config,
    }


def random_weights(family: Family, seed: int) -> dict[str, NDArray[np.float32]]:
    """Normal matrices, zero biases and unit norms, as the families are initialised; the same on every machine."""
    import numpy as np

    noise = np.random.Generator(np.random.Philox(seed))
    weights = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        weights |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer(family).items()}
    if not family.config["tie_word_embeddings"]:
        weights["lm_head.weight"] = (VOCABULARY, HIDDEN)
    return {name: _initial(name, shape, noise) for name, shape in weights.items()}


def _layer(family: Family) -> dict[str, tuple[int, ...]]:
    """Names and shapes of one layer's tensors; their order decides what each is drawn."""
    shapes: dict[str, tuple[int, ...]] = {}
    for part, heads in ("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS):
        shapes[f"self_attn.{part}_proj.weight"] = (heads * family.head_dim, HIDDEN)
        if family.qkv_bias:
            shapes[f"self_attn.{part}_proj.bias"] = (heads * family.head_dim,)
    shapes |= {
        "self_attn.o_proj.weight": (HIDDEN, HEADS * family.head_dim), "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN), "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
        "input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,),
    }
    if family.qk_norm:
        shapes |= {"self_attn.q_norm.weight": (family.head_dim,), "self_attn.k_norm.weight": (family.head_dim,)}
    return shapes


def _initial(name: str, shape: tuple[int, ...], noise: np.random.Generator) -> NDArray[np.float32]:
    import numpy as np

    if len(shape) == 2:
        return (SPREAD * noise.standard_normal(shape)).astype(np.float32)
    return np.zeros(shape, np.float32) if name.endswith("bias") else np.ones(shape, np.float32)


def tokenizer() -> Tokenizer:
    """One token a character. Byte-level, without merges: the form that every tokenizer class reads alike."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    symbols = [*SPECIAL.values(), *CHARACTERS.replace(" ", "Ġ")]
    built = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(symbols)}, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL.values()])
    return built

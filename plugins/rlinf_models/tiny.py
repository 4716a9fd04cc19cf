"""`tiny:digits`: a Qwen2 small enough to learn from random weights in seconds on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.api import UsageError
from rlinf_models.directory import write_model, write_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

CHARACTERS = "0123456789+-*=<>scrd ,?."
"""The 24 symbols of the digits tasks; any other character is dropped."""
SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>"}
HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE, LONGEST = 128, 2, 4, 2, 512, 2048
SPREAD = 0.02
"""Standard deviation of the random weights, Qwen2's own."""


class TinyModel:
    """Source of `tiny` and `tiny:digits`: random weights, a function of the seed."""

    def __init__(self, variant: str, seed: int) -> None:
        if variant not in ("", "digits"):
            raise UsageError(f"model 'tiny:{variant}' does not exist: the only variant is tiny:digits")
        self._seed = seed

    def key(self) -> str:
        return f"tiny-digits-seed{self._seed}-v1"

    def build(self, directory: Path) -> None:
        write_model(directory, configuration(), random_weights(self._seed))
        # an unk_token of its own would be a 28th token to the Qwen2 tokenizer class
        write_tokenizer(directory, tokenizer(), {**SPECIAL, "unk_token": SPECIAL["pad_token"]}, LONGEST)


def configuration() -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "intermediate_size": INTERMEDIATE, "hidden_act": "silu", "rms_norm_eps": 1e-6,
        "max_position_embeddings": LONGEST, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "use_sliding_window": False, "tie_word_embeddings": True, "vocab_size": len(SPECIAL) + len(CHARACTERS),
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }


def random_weights(seed: int) -> dict[str, NDArray[np.float32]]:
    """Normal matrices, zero biases and unit norms, as Qwen2 is initialised; the same on every machine."""
    import numpy as np

    noise, key_value = np.random.Generator(np.random.Philox(seed)), HIDDEN // HEADS * KV_HEADS
    weights = {"model.embed_tokens.weight": (len(SPECIAL) + len(CHARACTERS), HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        parts = {
            "self_attn.q_proj.weight": (HIDDEN, HIDDEN), "self_attn.q_proj.bias": (HIDDEN,),
            "self_attn.k_proj.weight": (key_value, HIDDEN), "self_attn.k_proj.bias": (key_value,),
            "self_attn.v_proj.weight": (key_value, HIDDEN), "self_attn.v_proj.bias": (key_value,),
            "self_attn.o_proj.weight": (HIDDEN, HIDDEN), "mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            "mlp.up_proj.weight": (INTERMEDIATE, HIDDEN), "mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
            "input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,),
        }
        weights |= {f"model.layers.{layer}.{name}": shape for name, shape in parts.items()}
    return {name: _initial(name, shape, noise) for name, shape in weights.items()}


def _initial(name: str, shape: tuple[int, ...], noise: np.random.Generator) -> NDArray[np.float32]:
    import numpy as np

    if len(shape) == 2:
        return (SPREAD * noise.standard_normal(shape)).astype(np.float32)
    return np.zeros(shape, np.float32) if name.endswith("bias") else np.ones(shape, np.float32)


def tokenizer() -> Tokenizer:
    """One token a character. Byte-level, without merges: the form that every Qwen2 tokenizer class reads alike."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    symbols = [*SPECIAL.values(), *CHARACTERS.replace(" ", "Ġ")]
    built = Tokenizer(models.BPE(vocab={symbol: number for number, symbol in enumerate(symbols)}, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL.values()])
    return built

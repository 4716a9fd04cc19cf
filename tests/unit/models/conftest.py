import json

import numpy as np
import pytest
import torch

from rlinf_cli.plugins.loader import load_plugins
from rlinf_models.tiny import TinyModel


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def plugins():
    return load_plugins(third_party=False)


@pytest.fixture
def model(tmp_path):
    """A complete model directory that a test may damage."""
    directory = tmp_path / "model"
    directory.mkdir()
    TinyModel("digits", 0).build(directory)
    return directory


SMALL = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "bos_token_id": 257,
         "eos_token_id": 258, "pad_token_id": 256}
SPECIAL = ["<pad>", "<bos>", "<eos>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "1 2", "12 3", "123 4", "Ġ Ġ"]


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """`make_model(type, **configuration)`: directory of a random model, far from uniform, without a tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    made = {}

    def make(model_type, **more):
        name = f"{model_type} {sorted(more.items())}"
        if name not in made:
            torch.manual_seed(0)
            model = AutoModelForCausalLM.from_config(AutoConfig.for_model(model_type, **{**SMALL, **more}))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.15 * torch.randn_like(parameter))
            made[name] = tmp_path_factory.mktemp("model")
            model.save_pretrained(made[name])
        return made[name]

    return make


@pytest.fixture(scope="session")
def vocabulary():
    """Tokens of a byte-level BPE (256 bytes, three special ones, one for each merge), merges, and types of the tokens."""
    from tokenizers.pre_tokenizers import ByteLevel

    tokens = [*sorted(ByteLevel.alphabet()), *SPECIAL, *(merge.replace(" ", "") for merge in MERGES), "<tool>", "whole"]
    kinds = [4 if token == "<tool>" else 3 if token in SPECIAL else 1 for token in tokens]
    padding = [f"[PAD{number}]" for number in range(len(tokens), SMALL["vocab_size"])]
    return tokens + padding, list(MERGES), kinds + [5] * len(padding)


@pytest.fixture(scope="session")
def write_gguf(vocabulary):
    """`write_gguf(path, model directory, quantised, without, **metadata)`: as llama.cpp's converter writes it.

    `metadata`: further values, with `__` for a dot and `arch` for the architecture's name; None leaves one out. `without`
    and `tensors`: names of tensors to leave out, and further tensors.
    """
    import gguf
    from safetensors.torch import load_file

    def write(path, model, quantised="F32", without=(), tensors=None, **metadata):
        config = json.loads((model / "config.json").read_text())
        arch = metadata.pop("general__architecture", config["model_type"])
        writer = gguf.GGUFWriter(path, arch)
        for name, value in {**described(config, vocabulary), **metadata}.items():
            add(writer, name.replace("arch__", f"{arch}__", 1).replace("__", "."), value)
        kind = gguf.GGMLQuantizationType[quantised]
        names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[config["model_type"].upper()], config["num_hidden_layers"])
        for name, values in load_file(model / "model.safetensors").items():
            stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
            if stored not in without:
                write_tensor(writer, stored, permuted(values.numpy(), name, config), kind)
        for name, values in (tensors or {}).items():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def write_tensor(writer, name, values, kind):
        if kind == gguf.GGMLQuantizationType.F32 or values.ndim == 1:
            writer.add_tensor(name, np.ascontiguousarray(values, np.float32))
        else:
            writer.add_tensor(name, gguf.quantize(np.ascontiguousarray(values), kind), raw_dtype=kind)

    return write


def described(config, vocabulary):
    """The metadata of a model and of the tests' tokenizer."""
    tokens, merges, kinds = vocabulary
    return {
        "arch__context_length": config["max_position_embeddings"], "arch__embedding_length": config["hidden_size"],
        "arch__block_count": config["num_hidden_layers"], "arch__feed_forward_length": config["intermediate_size"],
        "arch__attention__head_count": config["num_attention_heads"],
        "arch__attention__head_count_kv": config["num_key_value_heads"],
        "arch__attention__layer_norm_rms_epsilon": config["rms_norm_eps"],
        "arch__attention__key_length": config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        "arch__rope__freq_base": config["rope_parameters"]["rope_theta"],
        "tokenizer__ggml__model": "gpt2", "tokenizer__ggml__pre": "qwen2", "tokenizer__ggml__tokens": tokens,
        "tokenizer__ggml__token_type": kinds, "tokenizer__ggml__merges": merges, "tokenizer__ggml__bos_token_id": 257,
        "tokenizer__ggml__eos_token_id": 258, "tokenizer__ggml__padding_token_id": 256,
        "tokenizer__chat_template": "{% for m in messages %}<bos>{{ m['content'] }}<eos>{% endfor %}",
    }


def add(writer, name, value):
    """A value by its Python type, as the converter writes such values."""
    if isinstance(value, list):
        writer.add_array(name, value)
    elif isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif value is not None:
        writer.add_string(name, value)


def permuted(values, name, config):
    """GGUF's order of the rows of a Llama's queries and keys."""
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}.get(name.split(".")[-2])
    if config["model_type"] != "llama" or heads is None:
        return values
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)

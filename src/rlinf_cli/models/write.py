"""Writing a Hugging Face directory without `transformers`: configuration, weights, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.models.files import INDEX, SAFETENSORS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Named = tuple[str, NDArray[np.float32]]

SHARD = 4 * 2**30
"""Bytes of weights that are held, and put in one file."""


def write_model(directory: Path, config: Mapping[str, Any], weights: Iterable[Named], shard: int = SHARD) -> None:
    """config.json, generation_config.json (the end and padding tokens of `config`) and the weights: model.safetensors, or
    files of about `shard` bytes and their index."""
    ends = {name: value for name, value in config.items() if name.endswith("_token_id")}
    _write_json(directory / "config.json", {**config, "dtype": "float32"})
    _write_json(directory / "generation_config.json", ends)
    names = [_write_shard(directory, number, held) for number, held in enumerate(_shards(weights, shard), 1)]
    if len(names) == 1:
        (directory / _shard_name(1)).rename(directory / SAFETENSORS)
    else:
        _write_json(directory / INDEX, {"metadata": {}, "weight_map": {
            name: _shard_name(number) for number, held in enumerate(names, 1) for name in held}})


def write_tokenizer(directory: Path, tokenizer: Tokenizer, special: Mapping[str, str], longest: int,
                    chat_template: str = "") -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja. `special`: bos_token, eos_token, pad_token, ..."""
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(directory / "tokenizer_config.json", {
        "tokenizer_class": "TokenizersBackend", "model_max_length": longest, "clean_up_tokenization_spaces": False,
        **special})
    if chat_template:
        (directory / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def _shards(weights: Iterable[Named], shard: int) -> Iterator[dict[str, NDArray[np.float32]]]:
    held: dict[str, NDArray[np.float32]] = {}
    for name, values in weights:
        if held and sum(other.nbytes for other in held.values()) + values.nbytes > shard:
            yield held
            held = {}
        held[name] = values
    yield held


def _write_shard(directory: Path, number: int, held: dict[str, NDArray[np.float32]]) -> list[str]:
    from safetensors.numpy import save_file

    save_file(held, directory / _shard_name(number), metadata={"format": "pt"})
    return list(held)


def _shard_name(number: int) -> str:
    return f"model-{number:05d}.safetensors"


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")

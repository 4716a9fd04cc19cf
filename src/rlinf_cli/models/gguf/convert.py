"""From a GGUF file to an ordinary Hugging Face directory: float32 weights, configuration, tokenizer, chat template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import PluginError
from rlinf_cli.models.gguf.architecture import check_tensors, configuration, layout
from rlinf_cli.models.gguf.file import GGUFFile, read_gguf
from rlinf_cli.models.gguf.tokenizer import check_tokenizer, special_tokens, tokenizer
from rlinf_cli.models.write import write_model, write_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REVISION = 1
"""Of what conversion makes of a file; part of the name that it is kept under."""


def check_gguf(path: Path) -> tuple[GGUFFile, dict[str, Any]]:
    """The file and the model's config.json, when all of it can be converted: nothing heavy is imported.

    Raises UsageError saying in one sentence why it cannot; PluginError when the package `gguf` is missing.
    """
    file = read_gguf(path)
    config = configuration(file)
    check_tensors(file, config)
    check_tokenizer(file, config["vocab_size"])
    if find_spec("gguf") is None:
        raise PluginError(f"model '{path}' needs the package gguf: run pip install 'rlinf-cli[gguf]'")
    return file, config


def convert_gguf(path: Path, directory: Path) -> None:
    """Write the model of a file into an existing empty directory. Raises as `check_gguf` does."""
    file, config = check_gguf(path)
    write_model(directory, config, dequantised(file, config))
    write_tokenizer(directory, tokenizer(file), special_tokens(file), config["max_position_embeddings"],
                    file.metadata.get("tokenizer.chat_template", ""))


def cache_key(path: Path) -> str:
    """Name for the converted model, from the file's place, size and time of change: files are too large to be read for
    it each time."""
    import xxhash

    state = path.stat()
    identity = xxhash.xxh3_64_hexdigest(f"{path.resolve()} {state.st_size} {state.st_mtime_ns}".encode())
    return f"gguf-{path.stem}-{identity}-v{_REVISION}"


def dequantised(file: GGUFFile, config: Mapping[str, Any]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Hugging Face name and float32 values of every tensor, one at a time."""
    import numpy as np
    from gguf import GGMLQuantizationType, dequantize

    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, (other, shape) in layout(config).items():
        kind = GGMLQuantizationType(file.tensors[name].kind)
        raw = np.frombuffer(file.content(name), np.uint8).reshape(*shape[:-1], -1)
        values = np.ascontiguousarray(dequantize(_typed(raw, kind.name), kind), np.float32)
        part = name.split(".")[-2]
        yield other, unpermuted(values, heads[part]) if config["model_type"] == "llama" and part in heads else values


def _typed(raw: NDArray[np.uint8], kind: str) -> NDArray[Any]:
    plain = {"F32": "<f4", "F16": "<f2"}
    return raw.view(plain[kind]) if kind in plain else raw


def unpermuted(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo the order that GGUF has a head's rows in (the two halves that rotate together, interleaved): first halves
    first."""
    import numpy as np

    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)

"""Writing a Hugging Face directory without `transformers`: configuration, weights, tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


def write_model(directory: Path, config: Mapping[str, Any], weights: Mapping[str, NDArray[np.float32]]) -> None:
    """config.json, generation_config.json (the end and padding tokens of `config`) and model.safetensors."""
    from safetensors.numpy import save_file

    ends = {name: value for name, value in config.items() if name.endswith("_token_id")}
    _write_json(directory / "config.json", {**config, "dtype": "float32"})
    _write_json(directory / "generation_config.json", ends)
    save_file(dict(weights), directory / "model.safetensors", metadata={"format": "pt"})


def write_tokenizer(directory: Path, tokenizer: Tokenizer, special: Mapping[str, str], longest: int,
                    chat_template: str = "") -> None:
    """tokenizer.json, tokenizer_config.json and chat_template.jinja. `special`: bos_token, eos_token, pad_token, ..."""
    tokenizer.save(str(directory / "tokenizer.json"))
    _write_json(directory / "tokenizer_config.json", {
        "tokenizer_class": "TokenizersBackend", "model_max_length": longest, "clean_up_tokenization_spaces": False,
        **special})
    if chat_template:
        (directory / "chat_template.jinja").write_text(chat_template, encoding="utf-8")


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")

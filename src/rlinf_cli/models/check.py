"""Whether a model can be used, told in milliseconds before anything starts (nothing heavy is imported)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import UsageError
from rlinf_cli.models.files import INDEX, SAFETENSORS, weight_files
from rlinf_cli.models.names import Directory, Named, interpret

if TYPE_CHECKING:
    from rlinf_cli.plugins.registry import Plugins

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def check_model(name: str, plugins: Plugins) -> None:
    """Raise UsageError (PluginError for what must be installed) saying in one sentence why the model cannot be used.

    A hub name is not looked up.
    """
    found = interpret(name, plugins)
    if isinstance(found, Directory):
        check_directory(found.path)
    elif isinstance(found, Named):
        plugins.get("model", found.name).load()(found.variant, 0)


def check_directory(path: Path) -> None:
    """Raise UsageError when a directory is not a complete Hugging Face model with safetensors and a tokenizer."""
    _check_config(path)
    _check_weights(path)
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise UsageError(f"model directory '{path}' has no tokenizer (tokenizer.json, ...): save it there with "
                         f"tokenizer.save_pretrained('{path}')")


def _check_config(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise UsageError(f"model directory '{path}' has no config.json: save the model there with "
                         f"model.save_pretrained('{path}')")
    config = _json(path / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise UsageError(f"{path / 'config.json'} has no model_type: it does not describe a transformers model")


def _check_weights(path: Path) -> None:
    if (path / INDEX).is_file() and not isinstance(_json(path / INDEX).get("weight_map"), dict):
        raise UsageError(f"{path / INDEX} has no weight_map: copy it again from where the model came from")
    files = weight_files(path)
    if not files:
        raise UsageError(_without_weights(path))
    for name in files:
        _check_safetensors(path, name)


def _without_weights(path: Path) -> str:
    pickles = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if pickles:
        return (f"model directory '{path}' has its weights in {pickles[0]}, which is not loaded, as pickles can run "
                f"code: convert it with model.save_pretrained('{path}')")
    return f"model directory '{path}' has no weights ({SAFETENSORS} or {INDEX})"


def _check_safetensors(path: Path, name: str) -> None:
    """The header's length must fit the file; a Git LFS pointer or half a download shows here."""
    if not (path / name).is_file():
        raise UsageError(f"model directory '{path}' lacks {name}, which its index names: copy it there")
    size = (path / name).stat().st_size
    with open(path / name, "rb") as file:
        start = file.read(8)
    if len(start) < 8 or 8 + struct.unpack("<Q", start)[0] > size:
        raise UsageError(f"{path / name} is no complete safetensors file (an unfinished download, or a Git LFS "
                         "pointer?): fetch it again")


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a JSON object")
    return document

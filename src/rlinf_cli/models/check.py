"""Whether a model can be used, told in milliseconds before anything starts (nothing heavy is imported)."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import UsageError
from rlinf_cli.models.files import INDEX, SAFETENSORS, weight_files
from rlinf_cli.models.gguf.convert import check_gguf
from rlinf_cli.models.names import GGUF, Directory, Named, interpret

if TYPE_CHECKING:
    from rlinf_cli.plugins.registry import Plugins

_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_BATCH_ROPES = {"longrope", "su"}
"""Rotary positions of a token that depend on other sequences of its batch (`su` is the older name)."""
_PICKLE_STARTS = (b"PK", b"\x80")
"""Of what torch.save writes: a zip archive, or, as it used to, a plain pickle."""
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")


def check_model(name: str, plugins: Plugins) -> None:
    """Raise UsageError (PluginError for what must be installed) saying in one sentence why the model cannot be used.

    A hub name is not looked up.
    """
    found = interpret(name, plugins)
    if isinstance(found, Directory):
        check_directory(found.path)
    elif isinstance(found, GGUF):
        check_gguf(found.path)
    elif isinstance(found, Named):
        plugins.get("model", found.name).load()(found.variant, 0)


def check_directory(path: Path) -> None:
    """Raise UsageError when a directory is not a complete Hugging Face model with safetensors and a tokenizer."""
    _check_config(path)
    _check_weights(path)
    _check_tokenizer(path)


def _check_config(path: Path) -> None:
    if not (path / "config.json").is_file():
        raise UsageError(_without_config(path))
    config = _json(path / "config.json")
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise UsageError(f"{path / 'config.json'} has no model_type: it does not describe a transformers model")
    if config.get("auto_map") and not _is_known(kind):
        raise UsageError(f"model directory '{path}' brings code of its own for models of type '{kind}', and such code is "
                         "not run: choose a model whose type the installed transformers has")
    _check_positions(path, config)


def _check_positions(path: Path, config: dict[str, Any]) -> None:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if {rope.get("rope_type"), rope.get("type")} & _BATCH_ROPES:
        raise UsageError(f"model directory '{path}' has rotary positions of type longrope: transformers rotates a whole batch "
                         "by its longest sequence, so log-probabilities would depend on what stands beside a sample: choose "
                         "another model")


def _without_config(path: Path) -> str:
    files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".gguf")
    if files:
        return f"model directory '{path}' has no config.json, but GGUF files: give one of them, as '{files[0]}'"
    return f"model directory '{path}' has no config.json: save the model there with model.save_pretrained('{path}')"


def _is_known(kind: str) -> bool:
    """Whether transformers has a folder for a type of models (importing its table of types would take a second)."""
    package = find_spec("transformers")
    places = package.submodule_search_locations if package else None
    return any((Path(place) / "models" / kind.replace("-", "_")).is_dir() for place in places or ())


def _check_weights(path: Path) -> None:
    if (path / INDEX).is_file() and not isinstance(_json(path / INDEX).get("weight_map"), dict):
        raise UsageError(f"{path / INDEX} has no weight_map: copy it again from where the model came from")
    files = weight_files(path)
    if not files:
        raise UsageError(_without_weights(path))
    for name in files:
        _check_safetensors(path, name)


def _check_tokenizer(path: Path) -> None:
    if not any((path / name).is_file() for name in _TOKENIZERS):
        raise UsageError(f"model directory '{path}' has no tokenizer (tokenizer.json, ...): save it there with "
                         f"tokenizer.save_pretrained('{path}')")
    settings = path / "tokenizer_config.json"
    if not (path / "tokenizer.json").is_file() and settings.is_file() and _json(settings).get("auto_map"):
        raise UsageError(f"model directory '{path}' brings code of its own for its tokenizer, and such code is not run: put "
                         "a tokenizer.json there")


def _without_weights(path: Path) -> str:
    pickles = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if pickles:
        return (f"model directory '{path}' has its weights in {pickles[0]}, which is not loaded, as pickles can run "
                f"code: convert it with model.save_pretrained('{path}')")
    return f"model directory '{path}' has no weights ({SAFETENSORS} or {INDEX})"


def _check_safetensors(path: Path, name: str) -> None:
    """The file must be as long as its header says; a Git LFS pointer, a pickle or half a download shows here."""
    if not (path / name).is_file():
        raise UsageError(f"model directory '{path}' lacks {name}, which its index names: copy it there")
    size = (path / name).stat().st_size
    with open(path / name, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        header = file.read(length) if 8 + length <= size else b""
    if header and size == 8 + length + _data_size(header):
        return
    if not header and start.startswith(_PICKLE_STARTS):
        raise UsageError(f"{path / name} is a pickle under the name of safetensors, which is not loaded, as pickles can run "
                         f"code: convert it with model.save_pretrained('{path}')")
    raise UsageError(f"{path / name} is no complete safetensors file (an unfinished download, or a Git LFS pointer?): fetch "
                     "it again")


def _data_size(header: bytes) -> int:
    """Bytes that follow a header; -1 when it is none."""
    try:
        entries = json.loads(header)
        return max((entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"), default=0)
    except (ValueError, AttributeError, KeyError, TypeError, IndexError):
        return -1


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{path} is not a JSON object")
    return document

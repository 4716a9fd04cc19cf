"""Images and instructions as models of `transformers` take them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium.spaces import Space
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rlinf_cli.api import Tensors, UsageError, load_tokenizer
from rlinf_policies.spaces import WHOLE, channels_last, images

INSTRUCTION, OBSERVATION = "instruction", "observation"
"""Names among what is observed, see `rlinf_cli.contracts.policy.Reads`."""

BYTES, PADDING, IMAGE = 256, 256, 257
"""Tokens of a model without a tokenizer: bytes, and then these."""

TINY_IMAGE, TINY_PATCH = 64, 16
TINY_EYE = {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "image_size": TINY_IMAGE, "patch_size": TINY_PATCH, "vision_use_head": False}
"""What small random models see with: SigLIP's."""


class Encoding(Protocol):
    """From text to tokens; `padding` is never one of a text."""

    padding: int

    def encode(self, text: str) -> list[int]: ...


class ByteEncoding:
    """One token a byte."""

    padding = PADDING

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class TokenizerEncoding:
    """That of a model's own tokenizer."""

    def __init__(self, directory: Path) -> None:
        self._tokenizer = load_tokenizer(directory)
        if self._tokenizer.pad_token_id is None:
            raise UsageError(f"the tokenizer of '{directory}' has no padding token: set pad_token in its tokenizer_config.json")
        self.padding = int(self._tokenizer.pad_token_id)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text)
        return ids


def open_model(path: str, class_name: str, tiny: Callable[[], Any], kind: str = "") -> tuple[Any, Encoding]:
    """A model of that class of `transformers` and how text becomes its tokens: that of a directory, or a small random one. Raises
    UsageError."""
    if not path:
        return tiny(), ByteEncoding()
    import transformers

    directory = require_directory(path, kind)
    return load_model(getattr(transformers, class_name), directory), TokenizerEncoding(directory)


def require_directory(path: str, kind: str) -> Path:
    """The Hugging Face directory. Raises UsageError where it is none, or of another `kind` of model (empty: any)."""
    directory = Path(path).expanduser()
    if not (directory / "config.json").is_file():
        raise UsageError(f"model.path={path} is no Hugging Face directory: it has no config.json")
    found = json.loads((directory / "config.json").read_text(encoding="utf-8")).get("model_type")
    if kind and found != kind:
        raise UsageError(f"model.path={path} holds a model of type {found!r}, where {kind!r} is needed")
    return directory


def load_model(auto: Any, directory: Path) -> Any:
    """A model of that class of `transformers`, in evaluation mode. Raises UsageError where tensors are missing or do not fit, as
    they would be random."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model, found = auto.from_pretrained(str(directory), dtype=torch.float32, local_files_only=True, use_safetensors=True,
                                            trust_remote_code=False, output_loading_info=True)
    except (ValueError, OSError) as error:
        raise UsageError(f"model.path={directory} holds no such model: {error}") from error
    broken = [*sorted(found["missing_keys"]), *sorted(str(key[0]) for key in found["mismatched_keys"])]
    if broken:
        raise UsageError(f"model.path={directory} does not fit its config.json: {len(broken)} tensors are missing or of another "
                         f"shape, first {broken[0]!r}")
    return model.eval()


def padded(texts: Sequence[str], encoding: Encoding, length: int) -> NDArray[np.int64]:
    """Tokens of each, [E, length], padded on the left; of longer ones the first `length`."""
    rows = np.full((len(texts), length), encoding.padding, np.int64)
    for row, text in zip(rows, texts, strict=True):
        tokens = encoding.encode(text)[:length]
        row[length - len(tokens) :] = tokens
    return rows


class Cameras:
    """The images of an observation, resized and with values from -1 to 1."""

    def __init__(self, space: Space[Any], size: int) -> None:
        self._shapes, self._size = images(space), size

    @property
    def count(self) -> int:
        return len(self._shapes)

    def pixels(self, observation: Mapping[str, Tensor]) -> Tensor:
        """float32 [N, cameras, 3, size, size]."""
        return torch.stack([self._one(observation[name if name != WHOLE else OBSERVATION], shape)
                            for name, shape in self._shapes.items()], 1)

    def _one(self, image: Tensor, shape: tuple[int, ...]) -> Tensor:
        first = (image.permute(0, 3, 1, 2) if channels_last(shape) else image).float()
        if first.shape[1] == 1:
            first = first.expand(-1, 3, -1, -1)
        if first.shape[2:] != (self._size, self._size):
            first = functional.interpolate(first, (self._size, self._size), mode="bilinear", antialias=True)
        return first / 127.5 - 1


def named(observation: Tensors) -> Mapping[str, Tensor]:
    """What is observed by name: policies that read always get a mapping."""
    assert not isinstance(observation, Tensor), "an observation without an instruction"
    return observation

"""What a GGUF file holds (versions 2 and 3), read without other packages: its metadata, and where its tensors lie."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf_cli.errors import UsageError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Type of a value in the metadata -> its letter in `struct`."""
_STRING, _ARRAY = 8, 9

BLOCKS = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}
"""Types of tensors that can be dequantised: name, numbers in a block, bytes of a block."""


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in the file."""

    shape: tuple[int, ...]
    """As in PyTorch: [outputs, inputs]."""
    kind: int
    """Key of `BLOCKS`."""
    start: int
    size: int
    """In bytes."""


@dataclass(frozen=True)
class GGUFFile:
    path: Path
    metadata: Mapping[str, Any]
    """Numbers, strings, and lists of one of them."""
    tensors: Mapping[str, StoredTensor]

    def content(self, name: str) -> bytes:
        """The bytes of a tensor."""
        tensor = self.tensors[name]
        with open(self.path, "rb") as file:
            file.seek(tensor.start)
            return file.read(tensor.size)


def read_gguf(path: Path) -> GGUFFile:
    """Raises UsageError for what is no GGUF file, is damaged or cut short, or holds tensors of an unknown type."""
    with open(path, "rb") as file:
        start = file.read(8)
        _check_start(path, start)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                found = _read(path, data)
            except (struct.error, UnicodeDecodeError, OverflowError) as error:
                raise UsageError(f"{path} is damaged or cut short (its header cannot be read): fetch it again") from error
            size = len(data)
    end = max((tensor.start + tensor.size for tensor in found.tensors.values()), default=0)
    if end > size:
        raise UsageError(f"{path} is cut short: it has {size} bytes of {end}; fetch it again")
    return found


def _check_start(path: Path, start: bytes) -> None:
    if start[:4] != _MAGIC:
        raise UsageError(f"{path} is no GGUF file: it does not begin with 'GGUF' (an unfinished download, or a Git LFS "
                         "pointer?)")
    version = int.from_bytes(start[4:], "little")
    if version not in _VERSIONS:
        raise UsageError(f"{path} is GGUF of version {version}, or of a big-endian machine: convert the model again with "
                         "llama.cpp's convert_hf_to_gguf.py")


def _read(path: Path, data: mmap.mmap) -> GGUFFile:
    reader = _Reader(data, 8)
    tensors, values = reader.number("Q"), reader.number("Q")
    metadata = {reader.string(): reader.value(reader.number("I")) for _ in range(values)}
    entries = [reader.tensor() for _ in range(tensors)]
    alignment = metadata.get("general.alignment", 32)
    start = -(-reader.at // alignment) * alignment
    return GGUFFile(path, metadata, {name: _placed(path, name, shape, kind, start + offset)
                                     for name, shape, kind, offset in entries})


def _placed(path: Path, name: str, shape: tuple[int, ...], kind: int, start: int) -> StoredTensor:
    if kind not in BLOCKS:
        raise UsageError(f"{path}: {name} is quantised in a way that is not supported (type {kind} of ggml): take a file "
                         f"in one of {', '.join(label for label, _, _ in BLOCKS.values())}")
    _, numbers, size = BLOCKS[kind]
    return StoredTensor(shape, kind, start, math.prod(shape) // numbers * size)


class _Reader:
    """Reads one thing after the other; struct.error past the end."""

    def __init__(self, data: mmap.mmap, at: int) -> None:
        self._data, self.at = data, at

    def number(self, letter: str) -> Any:
        return self._numbers(letter, 1)[0]

    def string(self) -> str:
        return self._strings(1)[0]

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.number("I"), self.number("Q")
            return self._strings(count) if inner == _STRING else list(self._numbers(_letter(inner), count))
        return self.number(_letter(kind))

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type and offset of a tensor."""
        name = self.string()
        shape = self._numbers("Q", self.number("I"))[::-1]
        return name, shape, self.number("I"), self.number("Q")

    def _numbers(self, letter: str, count: int) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{letter}")
        found = layout.unpack_from(self._data, self.at)
        self.at += layout.size
        return found

    def _strings(self, count: int) -> list[str]:
        data, at, found = self._data, self.at, []
        length_at = struct.Struct("<Q").unpack_from
        for _ in range(count):
            begin = at + 8
            at = begin + length_at(data, at)[0]
            found.append(data[begin:at].decode())
        if at > len(data):
            raise struct.error("a string beyond the end")
        self.at = at
        return found


def _letter(kind: int) -> str:
    if kind not in _NUMBERS:
        raise struct.error(f"a value of type {kind}")
    return _NUMBERS[kind]

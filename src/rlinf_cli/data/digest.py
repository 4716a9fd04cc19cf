"""Identity of what is in files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import xxhash

_CHUNK = 1 << 20


def file_digest(path: str | Path) -> str:
    """XXH3 (128 bits, hexadecimal) of a file's bytes: as fast as the disk."""
    digest = xxhash.xxh3_128()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return str(digest.hexdigest())


def text_digest(parts: Iterable[str]) -> str:
    """XXH3 (128 bits, hexadecimal) of texts and of where each ends."""
    digest = xxhash.xxh3_128()
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode())
    return str(digest.hexdigest())

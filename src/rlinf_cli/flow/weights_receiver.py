"""The engine's side of weights on their way: the tensors of a manifest."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlinf_cli.contracts.engine import HoldingEngine, TakesWeights
from rlinf_cli.errors import RunError
from rlinf_cli.flow.client import Client
from rlinf_cli.flow.weights_delta import apply
from rlinf_cli.flow.weights_layout import BUCKET_BYTES, Bytes, Changes, Extent, Manifest, buckets, tensor_at
from rlinf_cli.models.merge import base_checksum

if TYPE_CHECKING:
    import torch


class Receiver:
    """Tensors of a manifest, as views of shared memory where it is on the same node.

    `client`: this process's, which knows its node and reads others' shared memory · `model`: the directory that the
    engine was built from · `keep`: hold a copy of what came from another node, so that of the next version only the
    changes need to come.
    """

    def __init__(self, client: Client, model: Path, bucket_bytes: int = BUCKET_BYTES, keep: bool = False) -> None:
        self._client, self._model, self._keep, self._bucket_bytes = client, model, keep, bucket_bytes
        self._base = ""
        self._maps: dict[tuple[str, int], Bytes] = {}
        self._kept, self._kept_checksum = np.empty(0, np.uint8), ""

    def update(self, engine: TakesWeights, manifest: Manifest, recompute: bool = False) -> str:
        """Bring an engine the manifest's tensors, to be used where they lie if that can be; its checksum."""
        tensors = self.tensors(manifest)
        if isinstance(engine, HoldingEngine) and manifest.node == self._client.node and manifest.adapter is None:
            engine.hold_weights(manifest.version, tensors, recompute)
        else:
            engine.update_weights(manifest.version, tensors, manifest.adapter, recompute)
        return engine.weights_checksum()

    def tensors(self, manifest: Manifest) -> Iterator[tuple[str, torch.Tensor]]:
        """Those on the same node stay as they are until this engine has answered for the next version: one that computes on
        them where they lie need not copy them.

        Raises RunError when they belong to an adapter of other weights than those of the engine's model.
        """
        if manifest.base and manifest.base != self._own_base():
            raise RunError(f"the adapter of version {manifest.version} belongs to other weights than those in {self._model} "
                           f"on {self._client.node}: give all nodes the same model")
        if manifest.node == self._client.node:
            yield from _views(manifest, self._map(manifest))
        elif self._keep:
            yield from _views(manifest, self._updated(manifest))
        else:
            yield from self._fetched(manifest)

    def _own_base(self) -> str:
        self._base = self._base or base_checksum(self._model)
        return self._base

    def _fetched(self, manifest: Manifest) -> Iterator[tuple[str, torch.Tensor]]:
        """One bucket at a time."""
        import torch

        for bucket in buckets(manifest.entries, self._bucket_bytes):
            data = torch.from_numpy(self._fetch(manifest.node, manifest.path, bucket))
            for entry in bucket:
                yield entry.name, tensor_at(data[entry.offset - bucket[0].offset :], entry)

    def _updated(self, manifest: Manifest) -> Bytes:
        """All bytes of a version, in memory of this process."""
        changes, before = manifest.changes, self._kept_checksum
        self._kept_checksum = ""  # of no version, should this fail midway
        if changes is not None and changes.base == before:
            self._apply(manifest, changes)
        else:
            if len(self._kept) != manifest.size:
                self._kept = np.empty(manifest.size, np.uint8)
            for bucket in buckets(manifest.entries, self._bucket_bytes):
                data = self._fetch(manifest.node, manifest.path, bucket)
                self._kept[bucket[0].offset : bucket[0].offset + len(data)] = data
        self._kept_checksum = manifest.checksum
        return self._kept

    def _apply(self, manifest: Manifest, changes: Changes) -> None:
        entries = iter(manifest.entries)
        for bucket in buckets(changes.parts, self._bucket_bytes):
            data = self._fetch(manifest.node, changes.path, bucket)
            for change in bucket:
                start = change.offset - bucket[0].offset
                apply(change, data[start : start + change.length], next(entries), self._kept)

    def _fetch(self, node: str, path: str, bucket: Sequence[Extent]) -> Bytes:
        """The bytes of a bucket of a file of another node."""
        read, file = self._client.node_store(node), os.path.basename(path)
        start, end = bucket[0].offset, bucket[-1].offset + bucket[-1].length
        fetched = np.zeros(end - start, np.uint8)
        for offset in range(start, end, self._bucket_bytes):
            part = read(file, offset, min(self._bucket_bytes, end - offset))
            fetched[offset - start : offset - start + len(part)] = part
        return fetched

    def _map(self, manifest: Manifest) -> Bytes:
        # the file's identity: a region that had to grow is a new file under the old name
        identity = (manifest.path, os.stat(manifest.path).st_ino)
        if identity not in self._maps:
            self._maps = {key: value for key, value in self._maps.items() if key[0] != manifest.path}
            with open(manifest.path, "r+b") as file:
                self._maps[identity] = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
        return self._maps[identity]


def _views(manifest: Manifest, data: Bytes) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    whole = torch.from_numpy(data)
    return ((entry.name, tensor_at(whole[entry.offset :], entry)) for entry in manifest.entries)

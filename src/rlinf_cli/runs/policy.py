"""The policy of a checkpoint as a model directory, also where the checkpoint holds an adapter only."""

from __future__ import annotations

from pathlib import Path

import xxhash

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.errors import UsageError
from rlinf_cli.models.merge import ADAPTER_CONFIG, ADAPTER_WEIGHTS, StoredAdapter, merge_adapter, read_adapter
from rlinf_cli.models.resolve import build_once, default_cache, resolve_model
from rlinf_cli.plugins.loader import plugins
from rlinf_cli.runs.checkpoints import Checkpoint

CONFIG = "config.json"


def policy_directory(checkpoint: Checkpoint, config: RunConfig, cache: Path | None = None) -> Path:
    """A Hugging Face directory with the policy of a checkpoint: its own, or, where it holds an adapter, a merged copy
    that is built once into `cache` (by default that of the models).

    `config` is the run's. Raises UsageError when the checkpoint has neither, or the model that the adapter belongs to
    is gone or another one now.
    """
    if not has_adapter(checkpoint):
        return whole_model(checkpoint)
    adapter = read_adapter(checkpoint.adapter)
    base = base_model(adapter, config.model.name, config.seed)
    return build_once((cache or default_cache()).expanduser().resolve(), f"merged-{_identity(adapter, base)}",
                      lambda directory: merge_adapter(base, adapter, directory))


def has_adapter(checkpoint: Checkpoint) -> bool:
    return (checkpoint.adapter / ADAPTER_CONFIG).is_file()


def whole_model(checkpoint: Checkpoint) -> Path:
    """The model of a checkpoint. Raises UsageError when it holds none."""
    if not (checkpoint.model / CONFIG).is_file():
        raise UsageError(f"checkpoint {checkpoint.path} holds no Hugging Face model (no model/{CONFIG})")
    return checkpoint.model


def base_model(adapter: StoredAdapter, name: str, seed: int) -> Path:
    """Directory of the model that an adapter was trained on: where it was, or what the run's `model.name` stands for."""
    if (adapter.base / CONFIG).is_file():
        return adapter.base
    return resolve_model(name, seed, plugins())


def _identity(adapter: StoredAdapter, base: Path) -> str:
    """Of what comes out of merging: that of the adapter's file, which notes its base."""
    digest = xxhash.xxh3_128((adapter.path / ADAPTER_WEIGHTS).read_bytes())
    digest.update(f"{adapter.scale} {adapter.base_checksum or base}".encode())
    return digest.hexdigest()

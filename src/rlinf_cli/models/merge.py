"""A low-rank adapter, in peft's layout, merged into the weights that it was trained on: one tensor at a time."""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf_cli.errors import UsageError
from rlinf_cli.models.checksum import weights_checksum
from rlinf_cli.models.dtypes import DTYPES, cast, set_dtype
from rlinf_cli.models.files import INDEX, tokenizer_files, weight_files
from rlinf_cli.models.load import stored_weights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ADAPTER_WEIGHTS, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
BASE = "base_weights"
"""Metadata of the adapter's file: the checksum of the weights that it belongs to."""

_PREFIX = "base_model.model."
_OTHERS = ("use_dora", "use_rslora", "use_qalora", "modules_to_save", "rank_pattern", "alpha_pattern", "fan_in_fan_out",
           "lora_bias", "trainable_token_indices", "target_parameters", "layer_replication")
"""Settings of peft under which an adapter is more than two factors and a scale."""


@dataclass(frozen=True)
class StoredAdapter:
    """What an adapter's directory says of it, without its weights."""

    path: Path
    rank: int
    scale: float
    base: Path
    """The model directory that it was trained on, where that was."""
    base_checksum: str
    """Of the weights in that directory's files; empty when it was not noted."""


def adapted(weight: Tensor, lora_a: Tensor, lora_b: Tensor, scale: float) -> Tensor:
    """`weight + scale * lora_b @ lora_a`, float32 [outputs, inputs]."""
    import torch

    return torch.addmm(weight.float(), lora_b.float(), lora_a.float(), alpha=scale)


def base_checksum(directory: Path) -> str:
    """Checksum of all that the weight files of a model directory hold."""
    return weights_checksum(stored_weights(directory))


def read_adapter(path: Path) -> StoredAdapter:
    """Raises UsageError when it is more than two factors for each weight."""
    from safetensors import safe_open

    config = json.loads((path / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    others = [name for name in _OTHERS if config.get(name)]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or others:
        raise UsageError(f"{path} holds an adapter of peft that is not plain LoRA ({', '.join(others) or 'peft_type or bias'}): "
                         "merge it with peft")
    with safe_open(path / ADAPTER_WEIGHTS, framework="pt") as file:
        noted = (file.metadata() or {}).get(BASE, "")
    return StoredAdapter(path, config["r"], config["lora_alpha"] / config["r"],
                         Path(config.get("base_model_name_or_path") or ""), noted)


def save_factors(path: Path, factors: Mapping[str, Tensor], base: str) -> None:
    """Write an adapter's factors, named `W.lora_A` and `W.lora_B`, into its directory; `base` is the `base_checksum` of
    the model that they belong to."""
    from safetensors.torch import save_file

    save_file({_peft_name(name): tensor.contiguous() for name, tensor in factors.items()}, path / ADAPTER_WEIGHTS,
              metadata={"format": "pt", BASE: base})


def load_factors(adapter: StoredAdapter) -> dict[str, Tensor]:
    """The factors as `save_factors` was given them."""
    from safetensors.torch import load_file

    return {_factor_name(name): tensor for name, tensor in load_file(adapter.path / ADAPTER_WEIGHTS).items()}


def _peft_name(name: str) -> str:
    """`W.weight.lora_A`: base_model.model.W.lora_A.weight."""
    module, _, factor = name.rpartition(".weight.")
    return f"{_PREFIX}{module}.{factor}.weight"


def _factor_name(name: str) -> str:
    module, _, factor = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".")
    return f"{module}.weight.{factor}"


def merge_adapter(base: Path, adapter: StoredAdapter, target: Path, dtype: str = "float32") -> None:
    """Write the model of `base` with the adapter merged into `target`, an existing empty directory.

    Files and shards are named as in `base`; floating-point weights become `dtype`, sums are made in float32. Raises
    UsageError when the adapter was trained on other weights, or on some that `base` does not have.
    """
    if adapter.base_checksum and base_checksum(base) != adapter.base_checksum:
        raise UsageError(f"{adapter.path} was trained on other weights than those in {base}: put the model back that the "
                         "run started from")
    loaded = load_factors(adapter)
    unknown = {name.rpartition(".")[0] for name in loaded} - {name for name, _ in stored_weights(base)}
    if unknown:
        raise UsageError(f"{adapter.path} changes {min(unknown)}, which {base} does not have")
    size = sum(_merge_file(base / name, target / name, loaded, adapter.scale, dtype) for name in weight_files(base))
    _copy_rest(base, target, dtype, size)


def _merge_file(source: Path, target: Path, loaded: Mapping[str, Tensor], scale: float, dtype: str) -> int:
    """One weight file; the bytes of its tensors."""
    import torch
    from safetensors import safe_open

    wanted: torch.dtype = getattr(torch, dtype)
    with safe_open(source, framework="pt") as file:

        def tensors() -> Iterator[Tensor]:
            for entry in entries:
                tensor = file.get_tensor(entry.name)
                if f"{entry.name}.lora_A" in loaded:
                    tensor = adapted(tensor, loaded[f"{entry.name}.lora_A"], loaded[f"{entry.name}.lora_B"], scale)
                yield cast(entry.name, tensor, wanted)

        entries = _entries(file, dtype)
        _write(target, entries, tensors())
    return sum(entry.size for entry in entries)


@dataclass(frozen=True)
class _Entry:
    name: str
    code: str
    """What safetensors calls the type."""
    shape: tuple[int, ...]
    width: int
    """Bytes of an element."""

    @property
    def size(self) -> int:
        return self.width * math.prod(self.shape)


def _entries(file: Any, dtype: str) -> list[_Entry]:
    """What the merged file will hold, wide types first: safetensors wants every tensor aligned."""
    slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    codes = {name: _code(part.get_dtype(), dtype) for name, part in slices.items()}
    entries = [_Entry(name, codes[name], tuple(part.get_shape()), _width(codes[name])) for name, part in slices.items()]
    return sorted(entries, key=lambda entry: (-entry.width, entry.name))


def _code(stored: str, dtype: str) -> str:
    return DTYPES[dtype] if stored.startswith(("F", "BF")) else stored


def _width(code: str) -> int:
    return 1 if code == "BOOL" else int(code.lstrip("BFIU").partition("_")[0]) // 8


def _write(path: Path, entries: Iterable[_Entry], tensors: Iterable[Tensor]) -> None:
    """A safetensors file, never more than one tensor of it in memory."""
    import torch

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for entry in entries:
        header[entry.name] = {"dtype": entry.code, "shape": entry.shape, "data_offsets": (end, end + entry.size)}
        end += entry.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors:
            file.write(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)


def _copy_rest(base: Path, target: Path, dtype: str, size: int) -> None:
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    set_dtype(config, dtype)
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    if (base / INDEX).is_file():
        index = json.loads((base / INDEX).read_text(encoding="utf-8"))
        index["metadata"] = {**index.get("metadata", {}), "total_size": size}
        (target / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    for path in [*tokenizer_files(base), *base.glob("generation_config.json")]:
        shutil.copyfile(path, target / path.name)

"""A low-rank adapter over a transformers model, through peft: each adapted layer computes W x + scale B (A x).

B starts at 0 and A at peft's Kaiming-uniform numbers, drawn from the seed that torch's generator was given, so that all
ranks begin alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from torch import Tensor
from torch.nn import Linear, Parameter

from rlinf_cli.api import Adapter, UsageError, adapted, base_checksum, load_factors, read_adapter, save_factors, weights_checksum
from rlinf_torch.fit import require_fit
from rlinf_torch.policy import named_tensors
from rlinf_torch.trainer_config import TorchTrainerConfig

ADAPTER = "adapter"
_NAME = "default"
"""What peft calls the adapter inside of the model."""


class LowRankPolicy:
    """See `Policy`: a low-rank adapter is trained. `directory` holds the model that it is put over."""

    def __init__(self, model: Any, directory: Path, config: TorchTrainerConfig) -> None:
        self._config = LoraConfig(
            r=config.lora_rank, lora_alpha=config.lora_alpha, lora_dropout=0.0, bias="none", task_type="CAUSAL_LM",  # type: ignore[arg-type]
            target_modules=choose_layers(model, config.lora_targets), base_model_name_or_path=str(directory))
        self._base = base_checksum(directory)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch.initial_seed())
            self.model = inject_adapter_in_model(self._config, model, _NAME)
        layers = {f"{name}.weight": layer for name, layer in model.named_modules() if isinstance(layer, LoraLayer)}
        self.trained: Mapping[str, Parameter] = {
            f"{name}.{factor}": getattr(layer, factor)[_NAME].weight
            for name, layer in layers.items() for factor in ("lora_A", "lora_B")}
        self.adapter: Adapter | None = Adapter(config.lora_rank, config.lora_alpha / config.lora_rank, tuple(layers))

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        factors = dict(self.adapter_weights())
        own = {parameter.data_ptr() for parameter in self.trained.values()}
        assert self.adapter is not None
        for inner, tensor in named_tensors(self.model):
            name = inner.replace(".base_layer.", ".")
            if tensor.data_ptr() in own:
                continue
            a, b = factors.get(f"{name}.lora_A"), factors.get(f"{name}.lora_B")
            yield name, tensor.float() if a is None or b is None else adapted(tensor, a, b, self.adapter.scale)

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, parameter.detach()) for name, parameter in self.trained.items())

    def checksum(self) -> str:
        return f"{self._base}+{weights_checksum(self.adapter_weights())}"

    def save(self, directory: Path) -> None:
        (directory / ADAPTER).mkdir()
        self._config.save_pretrained(str(directory / ADAPTER))
        save_factors(directory / ADAPTER, dict(self.adapter_weights()), self._base)

    def read(self, directory: Path) -> Mapping[str, Tensor]:
        if not (directory / ADAPTER).is_dir():
            raise ValueError(f"{directory} has no {ADAPTER}/: the run that wrote it trained the weights themselves; "
                             "resume it with trainer.lora_rank=0")
        assert self.adapter is not None
        stored = read_adapter(directory / ADAPTER)
        if (stored.rank, stored.scale) != (self.adapter.rank, self.adapter.scale):
            raise ValueError(f"{stored.path} has rank {stored.rank} and scale {stored.scale:g}, the trainer's adapter rank "
                             f"{self.adapter.rank} and scale {self.adapter.scale:g} (lora_alpha / lora_rank): resume with the "
                             "trainer settings of the run that wrote it")
        if stored.base_checksum != self._base:
            raise ValueError(f"{stored.path} was trained on other weights than those of {self._config.base_model_name_or_path}: "
                             "resume with the model that the run started from")
        factors = load_factors(stored)
        require_fit(self.trained, factors, stored.path)
        return factors

    def take(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.adapter_weights():
            tensor.copy_(weights[name])


def choose_layers(model: Any, targets: Sequence[str]) -> list[str]:
    """Names, as peft's `target_modules`, of the linear layers that get an adapter: those that end like one of
    `targets`, or all of the decoder layers'.

    Raises UsageError when a target names none.
    """
    inside = {id(module) for module in model.get_decoder().layers.modules() if isinstance(module, Linear)}
    linear = {name for name, module in model.named_modules() if id(module) in inside}
    if not linear:
        raise UsageError(f"trainer.lora_rank: {type(model).__name__} has no linear layers in its decoder layers to adapt")
    for target in targets:
        if not any(f".{name}".endswith(f".{target}") for name in linear):
            known = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise UsageError(f"trainer.lora_targets has {target!r}, but the linear layers of this model's decoder are {known}")
    return sorted(targets or {name.rpartition(".")[2] for name in linear})

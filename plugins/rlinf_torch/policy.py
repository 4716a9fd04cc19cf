"""What of a model is trained, and how that is named, saved and taken up again: its weights, or an adapter over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter

from rlinf_cli.api import Adapter, UsageError, load_causal_lm, load_value_model, tokenizer_files, weights_checksum
from rlinf_torch.fit import require_fit
from rlinf_torch.trainer_config import TorchTrainerConfig

MODEL = "model"


class Policy(Protocol):
    """A model and its trained parameters."""

    model: Any
    """Of transformers; an adapter is in it."""
    trained: Mapping[str, Parameter]
    """By name; the others get no gradient."""
    adapter: Adapter | None

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """All weights, an adapter merged, detached, of tied ones the first."""
        ...

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The factors of the adapter."""
        ...

    def checksum(self) -> str:
        """Of everything that decides what the model computes."""
        ...

    def save(self, directory: Path) -> None:
        """Write the model, or the adapter, into its directory in that of a checkpoint."""
        ...

    def read(self, directory: Path) -> Mapping[str, Tensor]:
        """What `save` wrote, for `take`. Raises ValueError naming what does not fit."""
        ...

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from these."""
        ...


def open_policy(directory: Path, config: TorchTrainerConfig, trained: bool) -> Policy:
    """The model of a directory in float32 on the CPU, with what is to be trained of it; nothing unless `trained`."""
    # eval: dropout would make the trainer's policy another one than the engine's
    model = load_causal_lm(directory, "float32").eval()
    policy = _over(model, directory, config, trained)
    if policy.adapter is not None or not trained:
        round_frozen(model, getattr(torch, config.frozen_dtype))
    return policy


def open_critic(directory: Path, config: TorchTrainerConfig) -> Policy:
    """As `open_policy`, of a model that has a number for each token. It is trained whole, or its last layers and its head: an
    adapter is the policy's."""
    model = load_value_model(directory).eval()
    trained = choose_parameters(model, config.train_layers, model.score)
    return WholePolicy(model, _tokenizer(directory), trained, load_value_model)


def _over(model: Any, directory: Path, config: TorchTrainerConfig, trained: bool) -> Policy:
    if trained and config.lora_rank:
        from rlinf_torch.lora import LowRankPolicy

        return LowRankPolicy(model, directory, config)
    chosen = choose_parameters(model, config.train_layers) if trained else freeze(model)
    return WholePolicy(model, _tokenizer(directory), chosen, load_causal_lm)


def _tokenizer(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in tokenizer_files(directory)}


class OwnWeights:
    """Most of a `Policy`: weights of the model itself are trained."""

    adapter: Adapter | None = None

    def __init__(self, model: Any, trained: Mapping[str, Parameter]) -> None:
        self.model, self.trained = model, trained

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return named_tensors(self.model)

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())

    def checksum(self) -> str:
        return weights_checksum(self.named_weights())

    def take(self, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in self.named_weights():
            tensor.copy_(weights[name])


class WholePolicy(OwnWeights):
    """See `Policy`: weights of a model of transformers are trained.

    `tokenizer`: its files, kept as they are, since the directory may be gone when the model is saved · `load`: reads such a
    model from a directory.
    """

    def __init__(self, model: Any, tokenizer: Mapping[str, bytes], trained: Mapping[str, Parameter],
                 load: Callable[[Path, str], Any]) -> None:
        super().__init__(model, trained)
        self._tokenizer, self._load = tokenizer, load

    def save(self, directory: Path) -> None:
        self.model.save_pretrained(directory / MODEL)
        for name, content in self._tokenizer.items():
            (directory / MODEL / name).write_bytes(content)

    def read(self, directory: Path) -> Mapping[str, Tensor]:
        if not (directory / MODEL).is_dir():
            raise ValueError(f"{directory} has no {MODEL}/: set trainer.lora_rank to that of the run that wrote it")
        weights = dict(named_tensors(self._load(directory / MODEL, "float32")))
        require_fit(dict(self.named_weights()), weights, directory / MODEL)
        return weights


def named_tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    """The model's tensors by name, detached, each once: of tied ones the first name."""
    return ((name, tensor.detach()) for name, tensor in _own_tensors(model))


def keep_tensors_in(model: Any, room: Mapping[str, Tensor]) -> list[Tensor]:
    """Have the model's tensors in the memory of their name from now on, where shape, type and device agree; those that
    are."""
    kept = []
    for name, tensor in _own_tensors(model):
        place = room.get(name)
        if place is not None and _agree(place, tensor):
            if place.data_ptr() != tensor.data_ptr():
                tensor.data = place.copy_(tensor.detach())
            kept.append(tensor)
    return kept


def _agree(place: Tensor, tensor: Tensor) -> bool:
    alike = (place.shape, place.dtype, place.device) == (tensor.shape, tensor.dtype, tensor.device)
    return alike and not place.is_inference()  # or no gradient can be computed of it


def _own_tensors(model: Any) -> Iterator[tuple[str, Tensor]]:
    seen = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor


def round_frozen(model: Any, dtype: torch.dtype) -> None:
    """Keep the matrices of the decoder layers that are not trained in a type that arithmetic would round them to anyway.
    Embeddings, head and norms stay: the sum of the layers' outputs is computed in theirs."""
    for module in model.get_decoder().layers.modules():
        if isinstance(module, Linear) and not module.weight.requires_grad:
            module.weight.data = module.weight.data.to(dtype)


def freeze(model: Any) -> dict[str, Parameter]:
    """Train nothing."""
    model.requires_grad_(False)
    return {}


def choose_parameters(model: Any, layers: int, head: Module | None = None) -> dict[str, Parameter]:
    """The parameters to train, by name; the others get no gradient. `layers` 0 trains all, N the last N decoder layers and the
    `head`, if there is one.

    Raises UsageError when the model has fewer.
    """
    if layers:
        decoder = model.get_decoder().layers
        if layers > len(decoder):
            raise UsageError(f"trainer.train_layers is {layers}, but the model has {len(decoder)} decoder layers")
        model.requires_grad_(False)
        decoder[-layers:].requires_grad_(True)
        if head is not None:
            head.requires_grad_(True)
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}

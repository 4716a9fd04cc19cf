"""What a trainer is: the policy's parameters and optimiser on the ranks of one group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rlinf_cli.contracts.algorithm import LossInputs, ValueInputs
from rlinf_cli.rl.trajectory import FloatArray, Sample

if TYPE_CHECKING:
    from torch import Tensor

LossFunction = Callable[[LossInputs], "tuple[Tensor, Mapping[str, Tensor]]"]
ValueLossFunction = Callable[[ValueInputs], "tuple[Tensor, Mapping[str, Tensor]]"]


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among the trainer's processes. `init_method` is a `tcp://HOST:PORT` all can reach; world 1
    needs none."""

    rank: int = 0
    world: int = 1
    init_method: str = ""


@dataclass(frozen=True, slots=True)
class TrainItem:
    """A sample with what the loss needs of it: both arrays have one entry a response token (0 where the mask is off)."""

    sample: Sample
    advantages: FloatArray
    weights: FloatArray
    """Share of each token in the loss of the whole optimiser step (over all ranks)."""
    old_logprobs: FloatArray | None = None
    """The trainer's own log-probabilities at the start of the step; None: those of the sample stand for them."""
    comparable: bool = True
    """Whether the engine's log-probabilities are of the distribution that the trainer computes: not where it drew from a
    truncated one."""


@dataclass(frozen=True, slots=True)
class ValueItem:
    """A sample with what a critic's loss needs of it: arrays of one entry a response token (0 where the mask is off)."""

    sample: Sample
    old_values: FloatArray
    """The critic's outputs at the start of the step."""
    targets: FloatArray
    weights: FloatArray
    """As `TrainItem.weights`."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A low-rank adapter: each weight W of `targets` acts as `W + scale * B @ A`, with factors named `W.lora_A`
    [rank, inputs] and `W.lora_B` [outputs, rank]."""

    rank: int
    scale: float
    targets: tuple[str, ...]
    """Hugging Face names of the adapted weights, `.weight` included."""


class Trainer(Protocol):
    """Target of a trainer extension, built as `Trainer(config, model, device, ranks, total_steps)`.

    `total_steps` is the number of optimiser steps of the run, for learning-rate schedules; 0 for a model that is never
    trained (a reference): no optimiser and no adapter, the weights of the directory as they are. Every method is called
    on all ranks.
    """

    def __init__(self, config: Any, model: Path, device: str, ranks: Ranks, total_steps: int) -> None: ...

    def log_probs(self, samples: Sequence[Sample], temperature: float) -> list[FloatArray]:
        """Log-probability of each response token of this rank's samples under the current weights (nats)."""
        ...

    def train_step(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> dict[str, float]:
        """One optimiser step on the items of all ranks (`items` are this rank's; may be empty on some ranks).

        Splits them into micro-batches, sums gradients over micro-batches and ranks, clips, steps, advances the
        schedule. Returns the loss's metrics, summed over micro-batches and ranks and divided by the sum of the items'
        weights (of trained tokens), which makes them means under any aggregation; and, summed only, `actor/loss`, and
        `actor/entropy`, `actor/grad_norm`, `actor/lr`, `actor/logp_diff_mean`, `actor/logp_diff_max`
        (|log p(trainer) - log p(engine)| over this step's trained tokens, before the step).
        Raises FloatingPointError, and leaves the weights alone, when loss or gradient is not finite.
        """
        ...

    def accumulate(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> None:
        """Add the gradient of some of an optimiser step's items to what is there; this rank's alone, others may have been
        given more or less often. `train_step` is `accumulate` of all items and `finish(1.0)`. What the loss raises is
        raised, and then what has been accumulated is forgotten."""
        ...

    def finish(self, scale: float) -> dict[str, float]:
        """End the optimiser step that `accumulate` has begun: the gradients, and the losses that are reported, are
        multiplied by `scale`, summed over ranks, and the rest is as in `train_step`, which says what it returns and
        raises. `scale` serves items that were accumulated before it was known how many there would be."""
        ...

    def discard(self) -> None:
        """Forget what has been accumulated: the step has been given up. Weights and optimiser stay as they are."""
        ...

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The policy's weights, Hugging Face names, tied weights once, an adapter merged, detached, on any device."""
        ...

    def adapter(self) -> Adapter | None:
        """What `adapter_weights` belong to; None when the weights themselves are trained."""
        ...

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        """The adapter's factors alone, named as `Adapter` says; all that changes while one is trained."""
        ...

    def onload(self) -> int:
        """Bring back what `offload` moved; the bytes that were moved. Does nothing when all is there."""
        ...

    def offload(self) -> int:
        """Move weights, gradients and optimiser state off the device, as the trainer's own keys say (a GPU: to host memory;
        a CPU: to a file, or nowhere); the bytes that are free on the device now. The next method that needs them comes
        after an `onload`, but for `named_weights`, `adapter_weights` and `save`, which work where the weights are."""
        ...

    def save(self, directory: Path) -> None:
        """Write into an existing empty directory: `model/` (a Hugging Face directory: safetensors, config, tokenizer), or
        `adapter/` (as peft writes it) where an adapter is trained; and the optimiser's and schedule's state. All of it is
        loadable without running code."""
        ...

    def load(self, directory: Path) -> None:
        """Take up the state that `save` wrote. Raises ValueError naming what does not fit."""
        ...


class ValueTrainer(Protocol):
    """A model that gives a number for the text before each token, and its optimiser. Every method is called on all ranks; those
    that `Trainer` has are as there."""

    def values(self, samples: Sequence[Sample]) -> list[FloatArray]:
        """For each response token of this rank's samples the output for the text before it."""
        ...

    def train_values(self, items: Sequence[ValueItem], loss: ValueLossFunction) -> dict[str, float]:
        """One optimiser step, as `Trainer.train_step`: the loss's metrics, `critic/loss`, `critic/grad_norm`, `critic/lr`."""
        ...

    def onload(self) -> int: ...

    def offload(self) -> int: ...

    def save(self, directory: Path) -> None:
        """As `Trainer.save`; `model/` has the head that gives the values."""
        ...

    def load(self, directory: Path) -> None: ...


@runtime_checkable
class TrainsCritics(Protocol):
    """What a trainer class may offer besides; its config dataclass then says so with an attribute `trains_critics`."""

    @staticmethod
    def critic(config: Any, model: Path, device: str, ranks: Ranks, total_steps: int, lr: float) -> ValueTrainer:
        """The arguments are those of the trainer, but for `lr`: the peak learning rate; 0: that of `config`. `model` may be a
        causal language model, whose values begin at 0, or one with a scalar head of its own."""
        ...

"""What a policy for embodied tasks is, and what trains it: actions for observations, instead of tokens for prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rlinf_cli.contracts.trainer import Adapter, LossFunction, Ranks, ValueLossFunction
from rlinf_cli.rl.segment import Observation

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

Tensors: TypeAlias = "Tensor | Mapping[str, Tensor]"
"""An observation's arrays on the device, by name where the space is a `Dict`, of the space's types."""

WEIGHTS = "policy.safetensors"
"""What `PolicyTrainer.save` writes besides its own state: all that `named_weights` gives."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What a policy does about E observations."""

    actions: Tensor
    """[E, ...] as the environment takes them, within its space; [E, chunk, ...] of a policy that acts in chunks."""
    sampled: Tensor
    """[E, ...]: what the log-probabilities are of: unsquashed actions, or action tokens."""
    logprobs: Tensor
    """float32 [E, K]: of each of the K parts that were drawn (nats)."""
    values: Tensor | None
    """float32 [E]: the critic's outputs; zeros without a critic. None where the critic shares nothing with what acts:
    `Policy.values` is then asked for those of a whole step at once."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The same actions under the current weights, differentiable."""

    logprobs: Tensor
    """float32 [N, K]."""
    entropy: Tensor
    """float32 [N, K]."""
    values: Tensor
    """float32 [N]."""


class Policy(Protocol):
    """Target of a policy extension, built as `Policy(config, observation_space, action_space)` with an instance of its config
    dataclass and the spaces of one environment; a `torch.nn.Module`. What it is initialised with comes from torch's global
    random state. Its buffers, such as running statistics of observations, travel and are saved with its parameters.

    Raises UsageError in its constructor for spaces that it cannot serve. Its config dataclass may have a method
    `problems_with_spaces(observation_space, action_space)`, which yields a sentence for each such thing and imports no torch.
    """

    chunk: int
    """Environment steps that an action is for."""
    noise_size: int
    """Standard normal numbers that an action takes."""

    def act(self, observation: Tensors, noise: Tensor, deterministic: bool = False) -> Acted:
        """Without gradients. `noise`: float32 [E, noise_size], all that is random about it; `deterministic`: the likeliest
        action instead, with the log-probability of drawing it."""
        ...

    def evaluate(self, observation: Tensors, sampled: Tensor) -> Evaluated:
        """Of N transitions."""
        ...

    def values(self, observation: Tensors) -> Tensor:
        """float32 [N]: the critic's outputs, without gradients; zeros without a critic."""
        ...

    def statistics(self, observation: Tensors) -> Mapping[str, Tensor]:
        """Sums over N observations that `absorb` takes: those of several parts can be added. {} where none are kept."""
        ...

    def absorb(self, statistics: Mapping[str, Tensor]) -> None:
        """Take sums over all observations of a step into the running statistics."""
        ...

    # of torch.nn.Module
    def state_dict(self) -> dict[str, Any]: ...

    def parameters(self) -> Iterator[Parameter]: ...


@runtime_checkable
class Reads(Protocol):
    """A policy that is told the task in words: its observations have `INSTRUCTION` among their names, and are a mapping even
    where the space is none (the rest is then `OBSERVATION`)."""

    def encode(self, instructions: Sequence[str]) -> NDArray[np.int64]:
        """Tokens of each, [E, L], of the same L always."""
        ...


@runtime_checkable
class Imitates(Protocol):
    """A policy that can learn actions that it did not draw."""

    def drawn(self, actions: Tensor) -> Tensor:
        """What `Acted.sampled` would have been of actions, [N, ...] ([N, chunk, ...] where it acts in chunks), or as near to it
        as can be drawn."""
        ...


INSTRUCTION, OBSERVATION = "instruction", "observation"


@dataclass(frozen=True, slots=True)
class Transitions:
    """One rank's part of a step: N transitions, in a fixed order."""

    observations: Observation
    """[N, ...]."""
    sampled: NDArray[Any]
    """[N, ...], as `Acted.sampled`."""
    logprobs: NDArray[np.float32]
    """[N, K]: when it acted."""
    advantages: NDArray[np.float32]
    """[N]."""
    old_values: NDArray[np.float32]
    """[N]: the critic's outputs when it acted."""
    value_targets: NDArray[np.float32]
    """[N], in units of the critic's outputs."""


@dataclass(frozen=True, slots=True)
class Minibatch:
    """What one rank adds to an optimiser step."""

    rows: NDArray[np.int64]
    """[n]: which of its transitions; may be empty on some ranks."""
    weights: NDArray[np.float32]
    """[n]: the share of each transition in the loss of the whole optimiser step (over all ranks); the parts of a transition
    share it equally."""


class PolicyTrainer(Protocol):
    """A policy's parameters and optimiser on the ranks of one group. Every method is called on all ranks; those that
    `Trainer` has are as there."""

    def begin(self, transitions: Transitions, counted: NDArray[np.int64]) -> None:
        """This rank's part of a step; what `train_minibatch` trains on until `end`. `counted`: rows of which this rank tells the
        policy's running statistics."""
        ...

    def train_minibatch(self, minibatch: Minibatch, loss: LossFunction, value_loss: ValueLossFunction | None,
                        needs_entropy: bool = False, value_coef: float = 1.0) -> dict[str, float]:
        """One optimiser step on `loss + value_coef * value_loss`, as `Trainer.train_step`. The parts of the transitions are laid
        end to end for `loss`; its metrics, and `actor/loss`, `actor/entropy`, `actor/grad_norm`, `actor/lr`,
        `actor/logp_diff_mean`, `actor/logp_diff_max`; with `value_loss`, of which there is one part a transition, those of the
        critic, and `critic/loss`."""
        ...

    def end(self) -> None:
        """The step is over: running statistics of observations take in what `begin` counted, on all ranks; then it is forgotten.
        Without a `train_minibatch` in between it is the statistics alone that change."""
        ...

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Parameters and buffers."""
        ...

    def adapter(self) -> Adapter | None: ...

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]: ...

    def onload(self) -> int: ...

    def offload(self) -> int: ...

    def save(self, directory: Path) -> None:
        """`WEIGHTS`, and the state of optimiser and schedule."""
        ...

    def load(self, directory: Path) -> None: ...


@runtime_checkable
class TrainsPolicies(Protocol):
    """What a trainer class may offer besides; its config dataclass then says so with an attribute `trains_policies`."""

    @staticmethod
    def policy(config: Any, policy: Policy, device: str, ranks: Ranks, total_steps: int) -> PolicyTrainer:
        """Train a policy that has been built, alike on all ranks; the rest is as for a trainer."""
        ...

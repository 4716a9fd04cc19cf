"""What an algorithm is: pure tensor functions from samples to advantages and from log-probabilities to a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Returns:
    """What a whole step's samples earned, for `Algorithm.advantages`. B samples, in the order they are trained."""

    rewards: Tensor
    """float32 [B]; finite: samples without a reward have been left out."""
    groups: Tensor
    """int64 [B]; samples of one prompt share a number (0 .. G-1)."""
    lengths: Tensor
    """int64 [B]; trained tokens of each sample."""


@dataclass(frozen=True)
class LossInputs:
    """The trained tokens of one micro-batch, laid end to end: N tokens of whole samples.

    A loss is `sum(weights * token_loss)`: `weights` carry the normalisation over the whole optimiser step
    (all micro-batches of all ranks), so the gradient does not depend on how the step was split.
    """

    logprobs: Tensor
    """float32 [N], differentiable: under the current weights, at the sampling temperature (nats)."""
    old_logprobs: Tensor
    """float32 [N]: of the policy that made the tokens."""
    advantages: Tensor
    """float32 [N]."""
    weights: Tensor
    """float32 [N]: the share of each token in the mean."""
    samples: Tensor
    """int64 [N]: which sample of the micro-batch (0 .. B-1) a token belongs to."""
    entropy: Tensor | None = None
    """float32 [N], differentiable; only when the algorithm asks for it (`needs_entropy`)."""


class Algorithm(Protocol):
    """Target of an algorithm extension, built as `Algorithm(config)` with an instance of its config dataclass."""

    config: Any
    aggregation: str
    """How token losses are averaged over an optimiser step: `token-mean`, `sequence-mean` or `sequence-sum`
    (see `rlinf_cli.rl.aggregation`)."""
    needs_entropy: bool
    """Whether the loss uses `LossInputs.entropy` with a gradient."""

    def advantages(self, returns: Returns) -> Tensor:
        """Advantage of each sample, float32 [B] (its tokens share it)."""
        ...

    def loss(self, inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Loss (scalar) and metrics of one micro-batch.

        A metric is a scalar tensor that is summed over the micro-batches and ranks of an optimiser step, so it is a
        weighted sum too; its name is complete (`actor/clip_frac`).
        """
        ...

"""What an algorithm is: pure tensor functions from samples to advantages and from log-probabilities to a loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Returns:
    """What a whole step's samples earned. B samples, in the order they are trained; N trained tokens, sample by sample."""

    rewards: Tensor
    """float32 [B]; finite: samples without a reward have been left out."""
    groups: Tensor
    """int64 [B]; samples of one prompt share a number (0 .. G-1)."""
    lengths: Tensor
    """int64 [B]; trained tokens of each sample; their sum is N."""
    truncated: Tensor
    """bool [B]; the response was cut at the length limit."""
    longest: int
    """Tokens that a response may have (`rollout.max_new_tokens`)."""
    logprobs: Tensor
    """float32 [N]: log-probability of each trained token when it was sampled (nats)."""
    reference_logprobs: Tensor | None = None
    """float32 [N]: of the reference model; only when the algorithm asks for it (`needs_reference`)."""
    values: Tensor | None = None
    """float32 [N]: what the critic gave for the text before each trained token, in units of the reward (`Algorithm.values`);
    only when the algorithm has a critic (`needs_critic`)."""


@dataclass(frozen=True)
class LossInputs:
    """The trained tokens of one micro-batch, laid end to end: N tokens of whole samples.

    A loss is `sum(weights * token_loss)`: `weights` carry the normalisation over the whole optimiser step
    (all micro-batches of all ranks), so the gradient does not depend on how the step was split.
    """

    logprobs: Tensor
    """float32 [N], differentiable: under the current weights, at the sampling temperature (nats)."""
    old_logprobs: Tensor
    """float32 [N]: of the policy that the ratio is taken to: the trainer's own at the start of the step where it was
    asked for (`needs_recompute`), else what the engine reported."""
    advantages: Tensor
    """float32 [N]."""
    weights: Tensor
    """float32 [N]: the share of each token in the mean."""
    samples: Tensor
    """int64 [N]: which sample of the micro-batch (0 .. B-1) a token belongs to."""
    sampled_logprobs: Tensor
    """float32 [N]: as the engine reported them. Equal to `old_logprobs` unless those were recomputed, and where the
    engine's distribution was truncated (top-k, top-p, min-p), so that the two cannot be compared."""
    reference_logprobs: Tensor | None = None
    """float32 [N]: of the reference model; only when the algorithm asks for it (`needs_reference`)."""
    entropy: Tensor | None = None
    """float32 [N], differentiable; only when the algorithm asks for it (`needs_entropy`)."""


@dataclass(frozen=True)
class ValueTargets:
    """What a critic is to learn of a step's samples, in units of its own outputs; float32 [N] each."""

    outputs: Tensor
    """What it gave for them before it learned."""
    targets: Tensor


@dataclass(frozen=True)
class SegmentReturns:
    """What a step of T times E environment steps earned; an episode that ends in row t is followed by another in row t + 1."""

    rewards: Tensor
    """float32 [T, E]; finite."""
    outputs: Tensor
    """float32 [T, E]: the critic's, of the observations that were acted on."""
    last_outputs: Tensor
    """float32 [E]: of the observations that follow."""
    final_outputs: Tensor
    """float32 [T, E]: of the observation that an episode was cut off at; elsewhere it means nothing."""
    terminated: Tensor
    """bool [T, E]: the episode ended."""
    truncated: Tensor
    """bool [T, E]: it was cut off, and would have gone on."""
    known: Tensor
    """bool [T, E]: can be trained: neither lost with its simulator nor of an episode with a reward that is no number."""
    episodes: Tensor
    """int64 [T, E]: number (0 .. P-1) of the episode that a row belongs to; -1 where it has not ended by now."""
    returns: Tensor
    """float64 [P]: sum of an episode's rewards, those before this step too."""
    groups: Tensor
    """int64 [P]: episodes from the same initial state share a number."""


@dataclass(frozen=True)
class SegmentTargets:
    """What is learned of a step; [T, E] each."""

    advantages: Tensor
    """float32"""
    targets: Tensor
    """float32: what the critic learns, in units of its own outputs."""
    trained: Tensor
    """bool: which rows are trained; the others count for nothing, in no mean."""
    state: Mapping[str, float]
    """`Algorithm.state` after the step."""


@dataclass(frozen=True)
class ValueInputs:
    """The trained tokens of one micro-batch as a critic's loss sees them: N tokens of whole samples, float32 [N] each. A loss
    is `sum(weights * token_loss)`, as in `LossInputs`."""

    values: Tensor
    """Differentiable: the critic's outputs now."""
    old_values: Tensor
    """Its outputs at the start of the step."""
    targets: Tensor
    weights: Tensor


class Algorithm:
    """Base of all algorithms: target of an algorithm extension, built as `Class(config)` with an instance of its config
    dataclass. What is not overridden is the plainest choice, and what later versions add has a default here.
    """

    aggregation: str = "token-mean"
    """How token losses are averaged over an optimiser step: `token-mean`, `sequence-mean` or `sequence-sum`
    (see `rlinf_cli.rl.aggregation`)."""
    needs_entropy: bool = False
    """Whether the loss uses `LossInputs.entropy` with a gradient."""
    needs_reference: bool = False
    """Whether `reference_logprobs` are wanted: the workflow then has a reference role."""
    needs_recompute: bool = False
    """Whether the trainer computes the log-probabilities of the samples again at the start of each step."""
    supervised: bool = False
    """Whether it learns from responses in the data: nothing is generated, and there are no rewards."""
    needs_critic: bool = False
    """Whether `Returns.values` are wanted: the workflow then has a critic, which learns by `value_targets` and `value_loss`."""
    embodied: bool = False
    """Whether it learns from environments: it has `segment_advantages`."""
    learns_values: bool = False
    """Whether an embodied policy learns values too, by `segment_advantages` and `value_loss`."""
    value_coef: float = 1.0
    """Weight of `value_loss` where policy and critic share an optimiser step, as those of embodied policies do."""
    state: Mapping[str, float] = {}
    """What steps leave to later ones, numbers by name: an adaptive coefficient, running moments. Set by whoever trains, to what
    `next_state` gave, once the step is trained; kept with checkpoints."""
    rounds: int = 1
    """Times that a step may generate to fill itself with prompts whose samples take part (`takes_part`); 1: once."""
    per_group: bool = False
    """Whether `takes_part` and `advantages` look at the samples of one prompt only, and at no `state`, so that a prompt can be
    trained before all others of the step are there. The metrics of `advantages` are always of the whole step."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def takes_part(self, returns: Returns) -> Tensor:
        """Which samples are trained, bool [B]; the others count for nothing, in no mean."""
        import torch

        return torch.ones(len(returns.rewards), dtype=torch.bool)

    def advantages(self, returns: Returns) -> tuple[Tensor, Mapping[str, float]]:
        """Advantages of the samples that take part, float32 [B] (the tokens of a sample share it) or [N], and metrics of
        the step; a metric's name is complete (`actor/reward_kl`)."""
        raise NotImplementedError

    def loss(self, inputs: LossInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Loss (scalar) and metrics of one micro-batch.

        A metric is a scalar tensor that is summed over the micro-batches and ranks of an optimiser step, so it is a
        weighted sum too; its name is complete (`actor/clip_frac`).
        """
        raise NotImplementedError

    def enough(self, metrics: Mapping[str, float]) -> bool:
        """Whether the step's remaining optimiser steps are left out, after one with these metrics (of all ranks)."""
        return False

    def next_state(self, returns: Returns) -> Mapping[str, float]:
        """`state` after a step with these samples; changes nothing itself."""
        return self.state

    def values(self, outputs: Tensor) -> Tensor:
        """What a critic's outputs mean, in units of the reward; float32 [N]."""
        return outputs

    def value_targets(self, returns: Returns) -> tuple[ValueTargets, Mapping[str, float]]:
        """What the critic learns of a step, and metrics of the step (`critic/explained_variance`)."""
        raise NotImplementedError

    def value_loss(self, inputs: ValueInputs) -> tuple[Tensor, Mapping[str, Tensor]]:
        """As `loss`, of the critic (`critic/clip_frac`)."""
        raise NotImplementedError

    def segment_advantages(self, returns: SegmentReturns) -> tuple[SegmentTargets, Mapping[str, float]]:
        """As `advantages`, of embodied policies; and what the critic learns, where `learns_values`. Changes nothing itself."""
        raise NotImplementedError

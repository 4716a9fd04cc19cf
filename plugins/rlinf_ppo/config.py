"""Configuration keys of PPO."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from rlinf_cli.api import key


@dataclass(frozen=True)
class PPOConfig:
    """Keys of `algorithm.name=ppo`."""

    needs_critic: ClassVar[bool] = True
    embodied: ClassVar[bool] = True
    rounds: ClassVar[int] = 1

    gamma: float = key(1.0, gt=0, le=1)
    """What a reward one token later is worth now."""
    gae_lambda: float = key(0.95, ge=0, le=1)
    """How far advantages look ahead before they trust the critic: 0: one token; 1: to the end of the response."""
    clip_low: float = key(0.2, gt=0, le=1)
    """How far below 1 the ratio of new to old probability still has a gradient."""
    clip_high: float = key(0.2, gt=0)
    """How far above 1 it still has one."""
    value_clip: float = key(0.2, ge=0)
    """How far the critic's outputs may move in a step where that brings them nearer to their targets; 0: any way."""
    value_coef: float = key(1.0, gt=0)
    """Weight of the critic's loss where policy and critic are one model: those of environments."""
    normalize_values: bool = True
    """Have the critic learn returns in units of their running mean and standard deviation."""
    normalize_advantages: bool = True
    """Standardise advantages over all tokens of a step."""
    aggregation: str = key("token-mean", choices=("token-mean", "sequence-mean", "sequence-sum"))
    """`token-mean`: every token of an optimiser step counts the same. `sequence-mean`: every sample does, each the mean of
    its tokens. `sequence-sum`: a sample is the sum of its tokens, divided by `rollout.max_new_tokens`."""
    kl_coef: float = key(0.0, ge=0)
    """Weight of the divergence from the reference model, the model that training began with, which is subtracted from the
    reward of each token; 0: none, and no reference model is loaded."""
    kl_target: float = key(0.0, ge=0)
    """Divergence of a response (nats) that `kl_coef` is adapted to from step to step; 0: it stays as it is."""
    kl_horizon: float = key(10000.0, gt=0)
    """Samples in which `kl_coef` changes by a fifth at most."""
    entropy_coef: float = key(0.0, ge=0)
    """Weight of the policy's entropy, which is then kept up; 0: none."""
    target_kl: float = key(0.0, ge=0)
    """Divergence from the policy that made the samples (nats a token, `actor/kl`) after which the step's remaining optimiser
    steps are left out; 0: none are."""

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_coef > 0

    @property
    def per_group(self) -> bool:
        """Whether a prompt can be trained before all others of the step are there."""
        return not self.normalize_advantages and not self.kl_target

    def problems_with(self, config: Any) -> Iterator[str]:
        """What of the whole configuration does not go together, a sentence each."""
        if config.workflow == "supervised":
            yield (f"workflow=supervised has no rewards, which algorithm.name={config.algorithm.name} learns from: use "
                   "algorithm.name=sft or workflow=reasoning")
        if config.workflow == "cloning":
            yield (f"workflow=cloning shows demonstrations, which algorithm.name={config.algorithm.name} does not learn from: "
                   "use workflow=embodied or algorithm.name=bc")
        if config.workflow == "embodied":
            if self.kl_coef:
                yield (f"algorithm.kl_coef is {self.kl_coef}, but there is no reference model in an environment: give "
                       "algorithm.kl_coef=0")
        elif not getattr(config.settings("trainer"), "trains_critics", False):
            yield (f"trainer.name={config.trainer.name} trains no critics, which algorithm.name={config.algorithm.name} needs: "
                   "use trainer.name=torch, or an algorithm without a critic, such as grpo")
        if self.kl_target and not self.kl_coef:
            yield ("algorithm.kl_target has nothing to adapt while algorithm.kl_coef is 0: give the coefficient to begin with, "
                   "e.g. algorithm.kl_coef=0.1")

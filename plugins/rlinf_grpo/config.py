"""Configuration keys of GRPO and its kin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from rlinf_cli.api import key


@dataclass(frozen=True)
class GRPOConfig:
    """Keys of `algorithm.name=grpo` and of its variants, which are presets of them."""

    embodied: ClassVar[bool] = True
    needs_critic: ClassVar[bool] = False

    baseline: str = key("group", choices=("group", "leave-one-out", "none"))
    """What a reward is compared with: the mean of its prompt's samples, the mean of the other ones (RLOO), or nothing."""
    normalize: str = key("group", choices=("group", "batch", "none"))
    """What advantages are divided by: the standard deviation of their group's rewards; that of all tokens' advantages of
    the step, whose mean is subtracted too (REINFORCE++); or nothing (Dr. GRPO)."""
    aggregation: str = key("token-mean", choices=("token-mean", "sequence-mean", "sequence-sum"))
    """`token-mean`: every token of an optimiser step counts the same. `sequence-mean`: every sample does, each the mean of
    its tokens. `sequence-sum`: a sample is the sum of its tokens, divided by `rollout.max_new_tokens`."""
    ratio_level: str = key("token", choices=("token", "sequence"))
    """What the ratio of new to old probability is taken of and clipped: each token, or the whole response, per token
    (GSPO; the clip is then a thousandth of the usual)."""
    clip_low: float = key(0.2, gt=0, le=1)
    """How far below 1 the ratio of new to old probability still has a gradient."""
    clip_high: float = key(0.28, gt=0)
    """How far above 1 it still has one; larger than `clip_low` keeps rare tokens alive (DAPO)."""
    dual_clip: float = key(0.0, ge=0)
    """Largest ratio that counts where the advantage is below 0, e.g. 3; 0: no limit."""
    kl_coef: float = key(0.0, ge=0)
    """Weight of the divergence from the reference model, the model that training began with; 0: none, and no reference
    model is loaded."""
    kl_in: str = key("loss", choices=("loss", "reward"))
    """Where it counts: as a term of the loss of each token, or subtracted from the reward of what was sampled."""
    kl_estimator: str = key("auto", choices=("auto", "k1", "k2", "k3"))
    """How it is estimated (docs/algorithms.md); `auto`: `k3` in the loss, `k1` in the reward."""
    entropy_coef: float = key(0.0, ge=0)
    """Weight of the policy's entropy, which is then kept up; 0: none."""
    importance_cap: float = key(0.0, ge=0)
    """Correct for the engine's probabilities being not quite the trainer's: losses are weighted with the quotient of the
    two, at most this, e.g. 2. The trainer computes the probabilities again for it; 0: no correction."""
    importance_level: str = key("token", choices=("token", "sequence"))
    """Whether that weight is of each token, or the product of all of its response."""
    importance_mode: str = key("truncate", choices=("truncate", "mask"))
    """What happens beyond `importance_cap`: the weight is brought down to it, or the token or response is left out, also
    where the weight is under 1 / `importance_cap`."""
    zero_variance: str = key("keep", choices=("keep", "drop"))
    """What happens to prompts whose rewards are all equal: they count in means, with advantages of 0, or not at all."""
    rounds: int = key(1, ge=1)
    """Dynamic sampling (DAPO): times that a step may generate to have all its prompts with rewards that differ, which
    implies `zero_variance=drop`; 1: once, whatever comes."""
    overlong_buffer: float = key(0.0, ge=0, le=1)
    """Share of `rollout.max_new_tokens`, at its end, over which a growing punishment is added to the reward (DAPO: 0.2);
    0: none."""
    overlong_penalty: float = key(1.0, gt=0)
    """That punishment at the end of it."""
    overlong_filter: bool = False
    """Leave responses out that were cut at the length limit."""

    @property
    def needs_reference(self) -> bool:
        return self.kl_coef > 0

    @property
    def per_group(self) -> bool:
        """Whether a prompt can be trained before all others of the step are there."""
        return self.normalize != "batch"

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_coef > 0

    @property
    def needs_recompute(self) -> bool:
        return self.importance_cap > 0

    @property
    def drops_equal(self) -> bool:
        """Whether prompts whose rewards are all equal count for nothing."""
        return self.zero_variance == "drop" or self.rounds > 1

    @property
    def estimator(self) -> str:
        """`k1`, `k2` or `k3`."""
        return {"loss": "k3", "reward": "k1"}[self.kl_in] if self.kl_estimator == "auto" else self.kl_estimator

    def problems_with(self, config: Any) -> Iterator[str]:
        """What of the whole configuration does not go together, a sentence each."""
        from rlinf_grpo.problems import problems

        return problems(self, config)

"""Trainer on plain PyTorch: every rank holds the whole model, gradients are summed over the ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlinf_cli.api import LossFunction, Policy, PolicyTrainer, Ranks, Sample, TrainItem, ValueTrainer
from rlinf_torch.activations import arrange
from rlinf_torch.logprobs import TokenScorer
from rlinf_torch.microbatch import loss_inputs
from rlinf_torch.policy import keep_tensors_in, open_policy
from rlinf_torch.trainer_config import TorchTrainerConfig
from rlinf_torch.training import ModelTrainer, Seen


class TorchTrainer(ModelTrainer):
    """Contract: `rlinf_cli.api.Trainer`."""

    role = "actor"

    def __init__(self, config: TorchTrainerConfig, model: Path, device: str, ranks: Ranks, total_steps: int) -> None:
        policy = open_policy(model, config, trained=total_steps > 0)
        super().__init__(config, policy, device, ranks, total_steps)
        self._scorer = TokenScorer(policy.model, keeping=arrange(policy.model, config.activations))

    @staticmethod
    def critic(config: TorchTrainerConfig, model: Path, device: str, ranks: Ranks, total_steps: int,
               lr: float) -> ValueTrainer:
        """See `TrainsCritics`."""
        from rlinf_torch.critic import TorchCritic

        return TorchCritic(config, model, device, ranks, total_steps, lr)

    @staticmethod
    def policy(config: TorchTrainerConfig, policy: Policy, device: str, ranks: Ranks, total_steps: int) -> PolicyTrainer:
        """See `TrainsPolicies`."""
        from rlinf_torch.environments import TorchPolicyTrainer

        return TorchPolicyTrainer(config, policy, device, ranks, total_steps)

    def log_probs(self, samples: Sequence[Sample], temperature: float) -> list[NDArray[np.float32]]:
        return self._score(samples, lambda batch: self._scorer.score(batch, temperature)[0])

    def train_step(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> dict[str, float]:
        self.accumulate(items, loss, temperature, needs_entropy)
        return self.finish(1.0)

    def accumulate(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> None:
        self._add(items, lambda rows: self._backward(rows, loss, temperature, needs_entropy))

    def keep_weights_in(self, room: Mapping[str, Tensor]) -> int:
        """See `SharingTrainer`."""
        kept = keep_tensors_in(self._policy.model, room)
        self._kept = set(map(id, kept))
        return sum(tensor.nbytes for tensor in kept)

    def _sharing_width(self) -> int:
        return self._scorer.sharing_width

    def _backward(self, rows: Sequence[Sequence[TrainItem]], loss: LossFunction, temperature: float,
                  needs_entropy: bool) -> Seen:
        items, batch = self._laid_out(rows)
        with self._arithmetic():
            logprobs, entropy = self._scorer.score(batch, temperature, needs_entropy)
        inputs = loss_inputs(items, batch, logprobs, entropy if needs_entropy else None)
        value, metrics = loss(inputs)
        value.backward()  # type: ignore[no-untyped-call]
        diff = (logprobs.detach() - inputs.sampled_logprobs).abs()
        return Seen(len(diff), inputs.weights.sum(), {"actor/loss": value.detach(), **metrics},
                    {"actor/entropy": entropy.detach().sum(), "actor/logp_diff_mean": diff.sum()},
                    {"actor/logp_diff_max": diff.max()})

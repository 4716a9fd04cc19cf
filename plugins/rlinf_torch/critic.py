"""A critic on plain PyTorch: the model of a policy, with one number for each token in place of a distribution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlinf_cli.api import Ranks, Sample, ValueItem, ValueLossFunction
from rlinf_torch.activations import Keeping, arrange
from rlinf_torch.logprobs import sharing_width
from rlinf_torch.microbatch import MicroBatch, value_inputs
from rlinf_torch.policy import open_critic
from rlinf_torch.trainer_config import TorchTrainerConfig
from rlinf_torch.training import ModelTrainer, Seen


class TorchCritic(ModelTrainer):
    """Contract: `rlinf_cli.api.ValueTrainer`. `lr` 0: the learning rate of `config`."""

    role = "critic"

    def __init__(self, config: TorchTrainerConfig, model: Path, device: str, ranks: Ranks, total_steps: int, lr: float) -> None:
        policy = open_critic(model, config)
        super().__init__(replace(config, lr=lr or config.lr), policy, device, ranks, total_steps)
        self._scorer = ValueScorer(policy.model, arrange(policy.model, config.activations))

    def values(self, samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        return self._score(samples, self._scorer.score)

    def train_values(self, items: Sequence[ValueItem], loss: ValueLossFunction) -> dict[str, float]:
        self._add(items, lambda rows: self._backward(rows, loss))
        return self.finish(1.0)

    def _sharing_width(self) -> int:
        return self._scorer.sharing_width

    def _backward(self, rows: Sequence[Sequence[ValueItem]], loss: ValueLossFunction) -> Seen:
        items, batch = self._laid_out(rows)
        with self._arithmetic():
            values = self._scorer.score(batch)
        inputs = value_inputs(items, values)
        value, metrics = loss(inputs)
        value.backward()  # type: ignore[no-untyped-call]
        return Seen(len(values), inputs.weights.sum(), {"critic/loss": value.detach(), **metrics})


class ValueScorer:
    """The numbers of a token classification model of transformers with one label; `keeping` is around its decoder."""

    def __init__(self, model: Any, keeping: Keeping = nullcontext) -> None:
        self._model, self._keeping = model, keeping
        self.sharing_width = sharing_width(model.config)
        self._values: Callable[[MicroBatch], Tensor] = self._of_head if self.sharing_width else self._of_model

    def score(self, batch: MicroBatch) -> Tensor:
        """For each chosen token that of the text before it, float32 [N]."""
        with self._keeping():
            return self._values(batch).float()

    def _of_head(self, batch: MicroBatch) -> Tensor:
        decoder = self._model.get_decoder()
        hidden = decoder(input_ids=batch.input_ids, use_cache=False, **batch.attention).last_hidden_state
        values: Tensor = self._model.score(hidden.flatten(0, 1)[batch.positions])[:, 0]
        return values

    def _of_model(self, batch: MicroBatch) -> Tensor:
        values: Tensor = self._model(input_ids=batch.input_ids, use_cache=False, **batch.attention).logits[..., 0]
        return values.flatten()[batch.positions]

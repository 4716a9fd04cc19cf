"""A trainer that takes its time: in proportion to the tokens, shared among its ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf_cli.api import Adapter, LossFunction, Ranks, Sample, TrainItem
from rlinf_emulation.lengths import TOKENS, EmulatedTrainerConfig


class EmulatedTrainer:
    """See `rlinf_cli.api.Trainer`."""

    def __init__(self, config: EmulatedTrainerConfig, model: Path, device: str, ranks: Ranks, total_steps: int) -> None:
        self._config, self._ranks = config, ranks
        self._weights = torch.zeros(config.weights)
        if ranks.world > 1:
            torch.distributed.init_process_group("gloo", init_method=ranks.init_method, rank=ranks.rank,
                                                 world_size=ranks.world)

    @staticmethod
    def policy(config: EmulatedTrainerConfig, policy: Any, device: str, ranks: Ranks, total_steps: int) -> Any:
        """See `rlinf_cli.contracts.policy.TrainsPolicies`."""
        from rlinf_emulation.simulator import EmulatedPolicyTrainer

        return EmulatedPolicyTrainer(config, policy)

    def log_probs(self, samples: Sequence[Sample], temperature: float) -> list[NDArray[np.float32]]:
        time.sleep(sum(len(sample.response_ids) for sample in samples) / TOKENS * self._config.score_s)
        return [np.zeros(len(sample.response_ids), np.float32) for sample in samples]

    def train_step(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> dict[str, float]:
        self.accumulate(items, loss, temperature, needs_entropy)
        return self.finish(1.0)

    def accumulate(self, items: Sequence[TrainItem], loss: LossFunction, temperature: float,
                   needs_entropy: bool = False) -> None:
        time.sleep(sum(len(item.sample.response_ids) for item in items) / TOKENS * self._config.unit_s)

    def finish(self, scale: float) -> dict[str, float]:
        if self._ranks.world > 1:
            torch.distributed.barrier()
        self._weights += 1
        return dict.fromkeys(("actor/loss", "actor/entropy", "actor/grad_norm", "actor/lr", "actor/logp_diff_mean",
                              "actor/logp_diff_max"), 0.0)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        yield "weights", self._weights

    def adapter(self) -> Adapter | None:
        return None

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())

    def onload(self) -> int:
        time.sleep(self._config.move_s)
        return 0

    def offload(self) -> int:
        time.sleep(self._config.move_s)
        return 0

    def save(self, directory: Path) -> None:
        save_file({"weights": self._weights}, directory / "weights.safetensors")

    def load(self, directory: Path) -> None:
        self._weights = load_file(directory / "weights.safetensors")["weights"]

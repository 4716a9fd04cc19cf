"""A simulator, and a policy that acts in it, which take their time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlinf_cli.api import Acted, Adapter, Evaluated, Minibatch, Transitions
from rlinf_emulation.lengths import EmulatedEnvironmentConfig, EmulatedPolicyConfig, EmulatedTrainerConfig

WEIGHTS = "policy.safetensors"


class EmulatedEnvironment:
    """See `rlinf_cli.api.Environment`."""

    def __init__(self, config: EmulatedEnvironmentConfig) -> None:
        self._config = config

    def tasks(self) -> Sequence[str]:
        return [""]

    def states(self, task: str) -> int:
        return 0

    def instruction(self, task: str) -> str:
        return ""

    def make(self, count: int, device: str, images: bool) -> VectorEnv[Any, Any, Any]:
        return Sleeping(count, self._config)


class Sleeping(VectorEnv[Any, Any, Any]):
    """Episodes of a fixed number of steps."""

    def __init__(self, count: int, config: EmulatedEnvironmentConfig) -> None:
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs, self._config = count, config
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.single_action_space = spaces.Discrete(2)
        self._age = np.zeros((count, 1), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[NDArray[np.float32], dict[str, Any]]:
        self._age[options["reset_mask"]] = 0
        return self._age.copy(), {}

    def step(self, actions: Any) -> tuple[Any, ...]:
        time.sleep(self._config.step_s + self._config.each_s * self.num_envs)
        self._age += 1
        ended = self._age[:, 0] >= self._config.length
        return self._age.copy(), np.ones(self.num_envs), ended, np.zeros(self.num_envs, bool), {}


class EmulatedPolicy(torch.nn.Module):
    """See `rlinf_cli.api.Policy`. It makes room and comes back in `change_s`."""

    chunk, noise_size = 1, 1

    def __init__(self, config: EmulatedPolicyConfig, observation_space: Any, action_space: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(config.weights))
        self._config = config

    def act(self, observation: Tensor, noise: Tensor, deterministic: bool = False) -> Acted:
        count = len(observation)
        time.sleep(self._config.act_s * count)
        return Acted((noise[:, 0] > 0).long(), noise[:, 0], torch.full((count, 1), -0.7), torch.zeros(count))

    def evaluate(self, observation: Tensor, sampled: Tensor) -> Evaluated:
        raise NotImplementedError("the emulated trainer does not ask")

    def values(self, observation: Tensor) -> Tensor:
        return torch.zeros(len(observation))

    def statistics(self, observation: Tensor) -> Mapping[str, Tensor]:
        return {}

    def absorb(self, statistics: Mapping[str, Tensor]) -> None:
        pass

    def offload(self) -> int:
        time.sleep(self._config.change_s)
        return 0

    def onload(self) -> int:
        time.sleep(self._config.change_s)
        return 0


class EmulatedPolicyTrainer:
    """See `rlinf_cli.api.PolicyTrainer`: a time for each transition."""

    def __init__(self, config: EmulatedTrainerConfig, policy: EmulatedPolicy) -> None:
        self._config, self._policy = config, policy

    def begin(self, transitions: Transitions, counted: NDArray[np.int64]) -> None:
        pass

    def train_minibatch(self, minibatch: Minibatch, *_: Any, **__: Any) -> dict[str, float]:
        time.sleep(len(minibatch.rows) * self._config.transition_s)
        with torch.no_grad():
            self._policy.weight += 1
        return dict.fromkeys(("actor/loss", "actor/entropy", "actor/logp_diff_mean", "actor/logp_diff_max"), 0.0) | {
            "actor/grad_norm": 1.0, "actor/lr": 1.0}

    def end(self) -> None:
        pass

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, tensor.detach()) for name, tensor in self._policy.state_dict().items())

    def adapter(self) -> Adapter | None:
        return None

    def adapter_weights(self) -> Iterator[tuple[str, Tensor]]:
        return iter(())

    def onload(self) -> int:
        return 0

    def offload(self) -> int:
        return 0

    def save(self, directory: Path) -> None:
        save_file(dict(self.named_weights()), directory / WEIGHTS)

    def load(self, directory: Path) -> None:
        self._policy.load_state_dict(load_file(directory / WEIGHTS))

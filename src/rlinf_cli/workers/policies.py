"""The chosen policy: how it is built, and how a rollout's copy is acted with while new weights come."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlinf_cli.config.schema import RunConfig
from rlinf_cli.contracts.policy import INSTRUCTION, OBSERVATION, WEIGHTS, Acted, Policy, Reads, Tensors
from rlinf_cli.contracts.trainer import Adapter
from rlinf_cli.errors import UsageError
from rlinf_cli.models.checksum import weights_checksum
from rlinf_cli.rl.noise import action_noise, episode_keys
from rlinf_cli.rl.segment import Observation
from rlinf_cli.workers.environments.build import Spaces, build_environment

if TYPE_CHECKING:
    from torch import Tensor


def build_policy(config: RunConfig, spaces: Spaces, device: str) -> Policy:
    """Alike in every process of a run: with the weights that the run's seed gives. Raises UsageError as the policy does."""
    extension = config.extension("model")
    assert extension is not None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        policy: Any = extension.load()(config.settings("model"), *spaces)
    built: Policy = policy.to(device)
    return built


def load_weights(policy: Policy, checkpoint: Path) -> None:
    """Those of a checkpoint. Raises UsageError when it holds none, or they are those of another policy."""
    from safetensors.torch import load_file

    file = checkpoint / WEIGHTS
    if not file.is_file():
        raise UsageError(f"checkpoint {checkpoint} holds no policy of an environment (no {WEIGHTS})")
    held = policy.state_dict()
    stored = load_file(file)
    other = sorted(held.keys() ^ stored.keys()) or [name for name in held if held[name].shape != stored[name].shape]
    if other:
        raise UsageError(f"{file} is of another policy: '{other[0]}' differs from what model.name and env.name stand for")
    _copy(policy, stored.items())


def _copy(policy: Policy, tensors: Iterable[tuple[str, Tensor]]) -> None:
    held = policy.state_dict()
    with torch.no_grad():
        for name, tensor in tensors:
            held[name].copy_(tensor)


class PolicyEngine:
    """A rollout's policy, as weights reach it. `version`: of these; what is computed in `acting` is computed by one version."""

    takes_adapters = False

    def __init__(self, policy: Policy) -> None:
        self.policy, self.version = policy, 0
        self._lock = threading.Lock()
        self._is_away = False

    @property
    def engine(self) -> PolicyEngine:
        """See `rlinf_cli.workers.sharing.Share`."""
        return self

    def updating(self) -> contextlib.AbstractContextManager[None]:
        """New weights are taken inside; between two actions there is always time for it."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def acting(self) -> Iterator[Policy]:
        with self._lock:
            yield self.policy

    def update_weights(self, version: int, tensors: Iterable[tuple[str, Tensor]], adapter: Adapter | None = None,
                       recompute: bool = False) -> None:
        with self._lock:
            _copy(self.policy, tensors)
            self.version = version

    def weights_checksum(self) -> str:
        return weights_checksum(self.policy.state_dict().items())

    def release_memory(self) -> int:
        """Move the weights to main memory; the bytes that are free on the device now."""
        with self._lock:
            is_news, self._is_away = not self._is_away, True
            return _moved(self.policy, "cpu") if is_news else 0

    def resume_memory(self, device: str) -> int:
        """Take them back; the bytes that were moved."""
        with self._lock:
            is_news, self._is_away = self._is_away, False
            return _moved(self.policy, device) if is_news else 0


def _moved(policy: Any, device: str) -> int:
    """Bytes of what was elsewhere. A policy may have its own way to make room: `offload()` and `onload()`."""
    own = getattr(policy, "offload" if device == "cpu" else "onload", None)
    if own is not None:
        return int(own())
    moved: int = sum(tensor.nbytes for tensor in policy.state_dict().values() if tensor.device != torch.device(device))
    if moved:
        policy.to(device)
    return moved


class Noise:
    """Standard normal numbers for the actions of a fixed set of environments, made for several of them in advance."""

    AHEAD = 16

    def __init__(self, seed: int, environments: NDArray[np.int64], size: int) -> None:
        self._seed, self._environments, self._size = seed, environments, size
        count = len(environments)
        self._numbers, self._ages = np.full(count, -2, np.int64), np.zeros(count, np.int64)
        self._keys = np.zeros(count, np.uint64)
        self._made = np.empty((self.AHEAD, count, size), np.float32)
        self._place = self.AHEAD

    def at(self, numbers: NDArray[np.int64], ages: NDArray[np.int64]) -> NDArray[np.float32]:
        """For an action in episodes of these numbers and ages; float32 [E, size]."""
        self._ages += 1
        changed = (numbers != self._numbers) | (ages != self._ages)
        if changed.any():
            self._enter(np.flatnonzero(changed), numbers, ages)
        if self._place == self.AHEAD:
            self._place = 0
            self._make(np.arange(len(numbers)))
        noise: NDArray[np.float32] = self._made[self._place]
        self._place += 1
        return noise

    def _enter(self, rows: NDArray[np.intp], numbers: NDArray[np.int64], ages: NDArray[np.int64]) -> None:
        self._numbers[rows], self._ages[rows] = numbers[rows], ages[rows]
        self._keys[rows] = episode_keys(self._seed, self._environments[rows], numbers[rows])
        if self._place < self.AHEAD:
            self._make(rows)

    def _make(self, rows: NDArray[np.intp]) -> None:
        """From the present age on, for the rest of what is made in advance."""
        ahead = np.arange(self.AHEAD - self._place)
        steps = (self._ages[rows] + ahead[:, None]).reshape(-1)
        made = action_noise(np.tile(self._keys[rows], len(ahead)), steps, self._size)
        self._made[self._place :, rows] = made.reshape(len(ahead), len(rows), self._size)


class Actor:
    """Acts for a fixed set of environments: noise, instructions, and the way to the device and back."""

    def __init__(self, config: RunConfig, policy: Policy, device: str, environments: NDArray[np.int64]) -> None:
        self._device = device
        self._noise = Noise(config.seed, environments, policy.noise_size)
        self._instructions = instructions(config, policy)

    def seen(self, observation: Observation, tasks: NDArray[np.int64]) -> Observation:
        """With the instruction of each environment's task, where the policy reads."""
        if self._instructions is None:
            return observation
        named = observation if isinstance(observation, Mapping) else {OBSERVATION: observation}
        return {**named, INSTRUCTION: self._instructions[np.maximum(tasks, 0)]}

    def act(self, policy: Policy, observation: Observation, numbers: NDArray[np.int64], ages: NDArray[np.int64],
            deterministic: bool = False) -> Acted:
        """About what `seen` gave, in episodes of these numbers and ages."""
        noise = np.zeros((len(ages), policy.noise_size), np.float32) if deterministic else self._noise.at(numbers, ages)
        return policy.act(tensors(observation, self._device), torch.from_numpy(noise).to(self._device), deterministic)


def instructions(config: RunConfig, policy: Policy) -> NDArray[np.int64] | None:
    """Tokens of each task's instruction, [tasks, L], where the policy reads."""
    if not isinstance(policy, Reads):
        return None
    environment = build_environment(config)
    return policy.encode([environment.instruction(task) for task in environment.tasks()])


def tensors(observation: Observation, device: str) -> Tensors:
    """On the device; on a processor where they lie."""
    if isinstance(observation, Mapping):
        return {name: torch.from_numpy(np.ascontiguousarray(array)).to(device) for name, array in observation.items()}
    return torch.from_numpy(np.ascontiguousarray(observation)).to(device)

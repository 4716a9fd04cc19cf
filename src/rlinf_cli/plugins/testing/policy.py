"""Whether a policy keeps the contract of `rlinf_cli.api.Policy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Dict, Discrete, Space
from torch import Tensor

from rlinf_cli.plugins.testing.findings import a, require, run_all, target_of

EACH = 5
"""Environments that are acted in."""
CLOSE = 1e-4
"""Log-probabilities (nats) and values that differ by less are equal: rounding depends on how many are computed together."""
WORDS = ("lift the cube", "push", "", "open the drawer", "go")


def check_policy(target: Any, config: Any = None, observation_space: Space[Any] | None = None,
                 action_space: Space[Any] | None = None) -> None:
    """Raise AssertionError unless what it draws is as likely when it is seen again, depends on noise, observation and weights
    alone, fits the action space, and can be trained.

    `target`: the class, built as `target(config, observation_space, action_space)`, or its extension. The spaces are those of
    one environment that it serves; without them 4 numbers are observed and 2 are drawn, or, where `problems_with_spaces` of its
    configuration says that it needs one, there is an image as well.
    """
    policy_class, config = target_of(target, config)
    observations, actions = observation_space or _observations(config), action_space or Box(-1, 1, (2,))
    case = _Case(policy_class, config, observations, actions)
    run_all(case.has_its_attributes, case.gives_what_it_should, case.gives_the_same_when_it_sees_it_again,
            case.acts_for_each_environment_alone, case.draws_actions_of_the_space, case.reads_no_noise_when_deterministic,
            case.keeps_all_in_its_state_dict, case.can_be_trained, case.adds_up_its_statistics)


def _observations(config: Any) -> Space[Any]:
    numbers = Box(-1, 1, (4,))
    problems = getattr(config, "problems_with_spaces", lambda *spaces: ())
    if not list(problems(numbers, Box(-1, 1, (2,)))):
        return numbers
    return Dict({"state": numbers, "camera": Box(0, 255, (64, 64, 3), np.uint8)})


class _Case:
    def __init__(self, policy_class: Any, config: Any, observations: Space[Any], actions: Space[Any]) -> None:
        self._class, self._config, self._spaces = policy_class, config, (observations, actions)
        self._policy = self._build(0)
        self._observation = self._observe()
        self._noise = torch.randn(EACH, int(self._policy.noise_size), generator=torch.Generator().manual_seed(0))

    def has_its_attributes(self) -> None:
        own = self._policy
        require(isinstance(own, torch.nn.Module), f"a policy must be a torch.nn.Module, not {a(own)}")
        for name, least in ("chunk", 1), ("noise_size", 0):
            value = getattr(own, name, None)
            require(isinstance(value, int) and value >= least, f"{name} must be a number of at least {least}, not {value!r}")

    def gives_what_it_should(self) -> None:
        acted = self._act()
        chunk = (self._policy.chunk,) if self._policy.chunk > 1 else ()
        shape = (EACH, *chunk, *(self._spaces[1].shape or ()))
        require(tuple(acted.actions.shape) == shape, f"actions must be {list(shape)}, not {list(acted.actions.shape)}")
        require(len(acted.sampled) == EACH, f"sampled must be [E, ...], here [{EACH}, ...], not {list(acted.sampled.shape)}")
        require(acted.logprobs.ndim == 2 and len(acted.logprobs) == EACH and acted.logprobs.dtype == torch.float32,
                f"logprobs must be float32 [E, K], not {acted.logprobs.dtype} {list(acted.logprobs.shape)}")
        if acted.values is not None:
            require(acted.values.shape == (EACH,), f"values must be [E], here [{EACH}], not {list(acted.values.shape)}")
        require(not acted.logprobs.requires_grad, "act() computes gradients")

    def gives_the_same_when_it_sees_it_again(self) -> None:
        acted = self._act()
        with torch.no_grad():
            again = self._policy.evaluate(self._observation, acted.sampled)
        far = (again.logprobs - acted.logprobs).abs().max().item()
        require(far < CLOSE, f"logprobs of evaluate() are up to {far:.2g} from those of act()")
        require(again.entropy.shape == acted.logprobs.shape,
                f"entropy must be [N, K], here {list(acted.logprobs.shape)}, not {list(again.entropy.shape)}")
        for name, values in ("act", acted.values), ("evaluate", again.values):
            far = 0.0 if values is None else (self._policy.values(self._observation) - values).abs().max().item()
            require(far < CLOSE, f"values() gives what is up to {far:.2g} from the values of {name}()")

    def acts_for_each_environment_alone(self) -> None:
        rows = [3, 1]
        whole, part = self._act(), self._policy.act(_some(self._observation, rows), self._noise[rows])
        far = (part.actions - whole.actions[rows]).abs().max().item()
        require(far < CLOSE, f"actions are up to {far:.2g} others where other environments are acted in beside: noise and "
                             "observation of an environment must decide its action")

    def draws_actions_of_the_space(self) -> None:
        space = self._spaces[1]
        for deterministic in (False, True):
            acted = self._policy.act(self._observation, 4 * self._noise, deterministic).actions
            for action in (acted.flatten(0, 1) if self._policy.chunk > 1 else acted).cpu().numpy():
                require(space.contains(np.asarray(action, space.dtype)), f"the action {action} is not of the space {space}")

    def reads_no_noise_when_deterministic(self) -> None:
        first, second = (self._policy.act(self._observation, noise, True).actions for noise in (self._noise, -self._noise))
        require(torch.equal(first, second), "act() with deterministic=True depends on the noise")

    def keeps_all_in_its_state_dict(self) -> None:
        other = self._build(1)
        other.load_state_dict(self._policy.state_dict())
        same = torch.equal(other.act(self._observation, self._noise).logprobs, self._act().logprobs)
        require(same, "another instance with the same state_dict acts otherwise: keep running statistics in buffers")

    def can_be_trained(self) -> None:
        found = self._policy.evaluate(self._observation, self._act().sampled)
        for name in "logprobs", "values":
            self._policy.zero_grad()
            getattr(found, name).sum().backward(retain_graph=True)
            moved = any(parameter.grad is not None and bool(parameter.grad.any()) for parameter in self._policy.parameters())
            require(moved, f"{name} of evaluate() have no gradient to any parameter")

    def adds_up_its_statistics(self) -> None:
        whole = self._policy.statistics(self._observation)
        parts = [self._policy.statistics(_some(self._observation, rows)) for rows in ([0, 1], [2, 3, 4])]
        for name, total in whole.items():
            fits = torch.allclose(parts[0][name] + parts[1][name], total, rtol=1e-6, atol=1e-6)
            require(fits, f"statistics()['{name}'] of parts do not add up to that of all: give sums")

    def _build(self, seed: int) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self._class(self._config, *self._spaces).eval()

    def _act(self) -> Any:
        return self._policy.act(self._observation, self._noise)

    def _observe(self) -> Any:
        drawn = _draw(self._spaces[0], np.random.default_rng(0))
        if not hasattr(self._policy, "encode"):
            return drawn
        named = drawn if isinstance(drawn, Mapping) else {"observation": drawn}
        return {**named, "instruction": torch.from_numpy(self._policy.encode(WORDS))}


def _draw(space: Space[Any], noise: np.random.Generator) -> Any:
    if isinstance(space, Dict):
        return {name: _draw(part, noise) for name, part in space.items()}
    if isinstance(space, Discrete):
        return torch.from_numpy(noise.integers(0, space.n, EACH))
    assert isinstance(space, Box)
    if space.dtype == np.uint8:
        return torch.from_numpy(noise.integers(0, 256, (EACH, *space.shape), np.uint8))
    return torch.from_numpy(noise.standard_normal((EACH, *space.shape)).astype(np.float32))


def _some(observation: Any, rows: Sequence[int]) -> Any:
    def chosen(part: Tensor) -> Tensor:
        return part[list(rows)]

    return {name: chosen(part) for name, part in observation.items()} if isinstance(observation, Mapping) else chosen(observation)

"""What every policy keeps to, on spaces that it serves."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete

from rlinf_cli.plugins.testing import check_policy
from rlinf_policies.cnn import CNNPolicy
from rlinf_policies.config import CNNConfig, MLPConfig
from rlinf_policies.mlp import MLPPolicy
from rlinf_policies.pi0 import PI0Policy
from rlinf_policies.vla import VLAPolicy
from rlinf_policies.vla_config import PI0Config, VLAConfig

STATE = Box(-np.inf, np.inf, (5,))
CAMERA = Box(0, 255, (32, 24, 3), np.uint8)
SEEN = Dict({"camera": CAMERA, "state": STATE, "wrist": Box(0, 255, (3, 64, 64), np.uint8)})
ARM = Box(np.array([-1, -2, 0], np.float32), np.array([1, 2, 0.5], np.float32))

CASES = {
    "mlp, continuous": (MLPPolicy, MLPConfig(hidden=[16]), STATE, ARM),
    "mlp, squashed": (MLPPolicy, MLPConfig(hidden=[16, 8], squash=True, activation="silu", normalize=False), STATE, ARM),
    "mlp, discrete": (MLPPolicy, MLPConfig(hidden=[16]), Dict({"b": STATE, "a": Box(-1, 1, (2, 2))}), Discrete(4, start=2)),
    "mlp, numbered": (MLPPolicy, MLPConfig(hidden=[16]), Discrete(7), Discrete(3)),
    "cnn": (CNNPolicy, CNNConfig(hidden=[16], channels=[4, 8], features=12), SEEN, ARM),
    "cnn, image alone": (CNNPolicy, CNNConfig(hidden=[16], channels=[4, 8], features=12), CAMERA, Discrete(3)),
    "vla": (VLAPolicy, VLAConfig(chunk=2, instruction_tokens=8), SEEN, ARM),
    "vla, image alone": (VLAPolicy, VLAConfig(instruction_tokens=8), CAMERA, ARM),
    "pi0": (PI0Policy, PI0Config(chunk=3, denoising_steps=3, instruction_tokens=8), SEEN, ARM),
}
EACH = 6
"""Environments."""


WORDS = ["lift the cube", "", "push", "a long instruction, cut", "go", "turn"]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """A policy whose actions are far from uniform, and what it observes."""
    policy_class, config, observations, actions = CASES[request.param]
    return build(policy_class, config, observations, actions), observations


def build(policy_class, config, observations, actions):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        policy = policy_class(config, observations, actions).eval()
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                if name.startswith("head."):
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return policy


def observe(policy, space, seed=0):
    """What EACH environments show."""
    drawn = draw(space, EACH, np.random.default_rng(seed))
    if hasattr(policy, "encode"):
        drawn = drawn if isinstance(drawn, dict) else {"observation": drawn}
        drawn["instruction"] = torch.from_numpy(policy.encode(WORDS))
    return drawn


def noise_for(policy):
    return torch.randn(EACH, policy.noise_size, generator=torch.Generator().manual_seed(1))


def draw(space, count, noise):
    if isinstance(space, Dict):
        return {name: draw(part, count, noise) for name, part in space.items()}
    if isinstance(space, Discrete):
        return torch.from_numpy(noise.integers(0, space.n, count))
    if space.dtype == np.uint8:
        return torch.from_numpy(noise.integers(0, 256, (count, *space.shape), np.uint8))
    return torch.from_numpy(noise.normal(1, 3, (count, *space.shape)).astype(np.float32))


def test_what_was_drawn_is_as_likely_when_it_is_seen_again(case):
    policy, space = case
    observation = observe(policy, space)
    acted = policy.act(observation, noise_for(policy))
    again = policy.evaluate(observation, acted.sampled)
    assert acted.logprobs.shape == again.logprobs.shape == again.entropy.shape
    values = policy.values(observation)
    assert values.shape == again.values.shape == (EACH,)
    torch.testing.assert_close(again.logprobs, acted.logprobs, rtol=0, atol=1e-5)
    torch.testing.assert_close(again.values, values, rtol=0, atol=1e-5)
    if acted.values is not None:  # else it leaves them to `values`
        torch.testing.assert_close(acted.values, values, rtol=0, atol=1e-5)


def test_all_that_is_observed_reaches_actions_and_values(case):
    policy, space = case
    whole, other = observe(policy, space), observe(policy, space, seed=1)
    named = isinstance(whole, dict)
    read = [name for name in whole if not (name == "state" and isinstance(policy, VLAPolicy))] if named else []  # it sees only
    for changed in [{**whole, name: other[name].roll(1, 0)} for name in read] if named else [other]:
        acted = policy.act(whole, noise_for(policy))
        assert not torch.equal(policy.values(whole), policy.values(changed))
        again, else_again = policy.evaluate(whole, acted.sampled), policy.evaluate(changed, acted.sampled)
        assert (again.logprobs - else_again.logprobs).abs().max() > 1e-6


@pytest.mark.parametrize("name", CASES)
def test_the_check_of_plugins_finds_nothing(name):
    check_policy(*CASES[name])

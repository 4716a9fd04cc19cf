"""Heads, running statistics, spaces and tokens, by their numbers."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from rlinf_cli.api import UsageError
from rlinf_cli.plugins.testing.material import write_tokenizer
from rlinf_policies.config import CNNConfig, MLPConfig
from rlinf_policies.heads import Categorical, Gaussian, choose
from rlinf_policies.mlp import MLPPolicy
from rlinf_policies.normalize import EPSILON, RunningNorm
from rlinf_policies.pi0 import PI0Policy, require_room
from rlinf_policies.vla import VLAPolicy
from rlinf_policies.vla_config import PI0Config, VLAConfig

IMAGE = Box(0, 255, (64, 64, 3), np.uint8)


def test_gaussian_by_torch_distributions():
    head = Gaussian(4, Box(-1, 1, (3,)), math.log(0.5), squash=False)
    features, noise = torch.randn(5, 4), torch.randn(5, 3)
    drawn = head.draw(features, noise, deterministic=False)
    reference = torch.distributions.Normal(head.mean(features), 0.5)
    torch.testing.assert_close(drawn.logprobs[:, 0], reference.log_prob(drawn.sampled).sum(1))
    torch.testing.assert_close(drawn.sampled, head.mean(features) + 0.5 * noise)
    assert torch.equal(drawn.actions, drawn.sampled.clamp(-1, 1))
    _, entropy = head.judge(features, drawn.sampled)
    torch.testing.assert_close(entropy[:, 0], reference.entropy().sum(1))


def test_squashing_keeps_within_the_bounds_and_the_order():
    head = Gaussian(1, Box(np.float32([-2]), np.float32([6])), 0.0, squash=True)
    drawn = head.draw(torch.zeros(3, 1), torch.tensor([[-50.0], [0.0], [50.0]]), deterministic=False)
    assert drawn.actions.flatten().tolist() == [-2, 2, 6]


def test_choices_are_as_frequent_as_they_are_likely():
    logits = torch.log_softmax(torch.tensor([0.0, 1.0, -2.0, 0.5]), 0).expand(20000, 4)
    chosen = choose(logits, torch.randn(20000, generator=torch.Generator().manual_seed(0)))
    found = torch.bincount(chosen, minlength=4) / 20000
    torch.testing.assert_close(found, logits[0].exp(), rtol=0, atol=0.01)


def test_what_is_impossible_is_never_chosen():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf]]).expand(3, 3)
    assert choose(logits, torch.tensor([-40.0, 0.0, 40.0])).tolist() == [1, 1, 1]


def test_categorical_counts_from_its_start():
    head = Categorical(2, 3, start=5)
    drawn = head.draw(torch.randn(4, 2), torch.randn(4, 1), deterministic=False)
    assert torch.equal(drawn.actions, drawn.sampled + 5)


def test_running_statistics_are_those_of_all_that_was_seen():
    norm, noise = RunningNorm(3), torch.Generator().manual_seed(0)
    parts = [5 + 2 * torch.randn(count, 3, generator=noise) for count in (7, 100, 1)]
    for part in parts:
        norm.absorb(norm.statistics(part))
    whole = torch.cat(parts)
    torch.testing.assert_close(norm.mean, whole.mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(norm.variance, whole.var(0, correction=0), rtol=1e-5, atol=1e-5)
    assert norm.count.item() == 108
    torch.testing.assert_close(norm(whole), (whole - whole.mean(0)) / (whole.var(0, correction=0) + EPSILON).sqrt(),
                               rtol=1e-4, atol=1e-4)


def test_running_statistics_before_and_without_numbers():
    norm, x = RunningNorm(2), torch.tensor([[1.0, -3.0]])
    assert torch.equal(norm(x), x)
    norm.absorb(norm.statistics(torch.zeros(0, 2)))
    assert torch.equal(norm(x), x)
    norm.absorb(norm.statistics(x))  # one row has no spread
    assert norm(1000 * x).abs().max() == 10


def test_statistics_travel_with_the_weights():
    policy = MLPPolicy(MLPConfig(), Box(-1, 1, (2,)), Discrete(2))
    assert {"norm.mean", "norm.variance", "norm.count"} <= policy.state_dict().keys()
    assert not {"head.low", "head.high"} & policy.state_dict().keys()


def test_actor_and_critic_share_nothing():
    policy = MLPPolicy(MLPConfig(), Box(-1, 1, (2,)), Box(-1, 1, (1,)))
    found = policy.evaluate(torch.randn(4, 2), torch.randn(4, 1))
    found.logprobs.sum().backward()
    assert all(parameter.grad is None for parameter in policy.critic.parameters())


@pytest.mark.parametrize(("config", "observations", "actions", "sentence"), [
    (MLPConfig(), IMAGE, Discrete(2), "is an image of shape (64, 64, 3), which this policy does not see: use model.name=cnn"),
    (MLPConfig(), Dict({"a": MultiBinary(3)}), Discrete(2), "the observation 'a' is a MultiBinary: policies observe"),
    (CNNConfig(), IMAGE, MultiBinary(3), "the action is a MultiBinary: policies draw a Box or a Discrete"),
    (MLPConfig(squash=True), Box(-1, 1, (2,)), Box(-np.inf, np.inf, (1,)), "model.squash=true needs actions with bounds"),
    (VLAConfig(), Box(-1, 1, (2,)), Box(-1, 1, (1,)), "nothing of the observation is an image"),
    (PI0Config(), IMAGE, Discrete(2), "the action is Discrete(2), but this policy draws numbers within bounds"),
])
def test_spaces_that_are_not_served(config, observations, actions, sentence):
    (problem,) = config.problems_with_spaces(observations, actions)
    assert sentence in problem


def test_a_policy_refuses_what_its_configuration_does():
    with pytest.raises(UsageError, match=r"use model\.name=cnn"):
        MLPPolicy(MLPConfig(), IMAGE, Discrete(2))


def test_action_tokens_are_those_of_openvla():
    """bins = linspace(-1, 1, 256), token = vocabulary - digitize(action, bins), read back as the middle of the bin."""
    policy = VLAPolicy(VLAConfig(action_end=500), IMAGE, Box(-1, 1, (1,)))
    edges = np.linspace(-1, 1, 256)
    middles = (edges[:-1] + edges[1:]) / 2
    for action in (-1.0, -0.3, 0.0, 0.999, 1.0):
        token = 500 - np.digitize(np.clip(action, -1, 1), edges)
        read = middles[np.clip(500 - token - 1, 0, 254)]
        index = policy._end - 1 - token
        assert policy._actions(torch.tensor([[index]])).item() == pytest.approx(read, abs=1e-6)


def test_log_probabilities_of_tokens_are_those_of_the_vocabulary_among_the_bins():
    policy = VLAPolicy(VLAConfig(chunk=2, instruction_tokens=4), IMAGE, Box(-1, 1, (2,))).eval()
    observation = {"observation": torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8),
                   "instruction": torch.from_numpy(policy.encode(["go", "pick"]))}
    sampled = torch.randint(0, 256, (2, 4))
    prompt = policy._prompt(observation)
    tokens = torch.cat([prompt["input_ids"], policy._end - 1 - sampled], 1)
    mask = torch.cat([prompt["attention_mask"], torch.ones_like(sampled)], 1)
    with torch.no_grad():
        logits = policy.vlm(input_ids=tokens, pixel_values=prompt["pixel_values"], attention_mask=mask,
                            position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits[:, -5:-1, policy._end - 256 : policy._end]
    expected = torch.log_softmax(logits, -1).gather(2, 255 - sampled[..., None])[..., 0]
    torch.testing.assert_close(policy.evaluate(observation, sampled).logprobs, expected, rtol=0, atol=1e-5)


def test_the_flow_without_noise_is_that_of_transformers():
    config, space = PI0Config(chunk=3, denoising_steps=4, noise=1e-7, instruction_tokens=4), Box(-1, 1, (2,))
    policy = PI0Policy(config, Dict({"camera": IMAGE, "state": space}), space).eval()
    observation = {"camera": torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8), "state": torch.randn(2, 2),
                   "instruction": torch.from_numpy(policy.encode(["move", "push"]))}  # alike long: no padding between
    noise = torch.randn(2, policy.noise_size)
    acted = policy.act(observation, noise)
    seen = torch.full((2, 16), policy.flow.config.vlm_config.image_token_id)
    expected = policy.flow.sample_actions(
        state=observation["state"], input_ids=torch.cat([seen, observation["instruction"]], 1),
        pixel_values=policy._cameras.pixels(observation), noise=noise[:, :6].reshape(2, 3, 2), num_steps=4,
        attention_mask=torch.ones(2, 20, dtype=torch.int64), pixel_attention_mask=torch.ones(2, 1, dtype=torch.bool))
    torch.testing.assert_close(acted.sampled[:, -1], expected, rtol=0, atol=1e-5)


def test_a_flow_is_as_likely_as_its_gaussian_steps():
    policy = PI0Policy(PI0Config(chunk=2, denoising_steps=3, noise=0.3, instruction_tokens=4), IMAGE, Box(-1, 1, (2,))).eval()
    observation = {"observation": torch.randint(0, 256, (1, 64, 64, 3), dtype=torch.uint8),
                   "instruction": torch.from_numpy(policy.encode(["go"]))}
    noise = torch.randn(1, policy.noise_size)
    acted, added = policy.act(observation, noise), noise[0, 4:].reshape(3, 2, 2)
    expected = (torch.distributions.Normal(0, 1).log_prob(added) - math.log(0.3)).sum((0, 2))
    torch.testing.assert_close(acted.logprobs[0], expected, rtol=0, atol=1e-4)


def test_more_than_a_model_has_room_for():
    class Config:
        chunk_size, max_action_dim, max_state_dim = 50, 32, 32

    require_room(Config, 50, 32, 32)
    with pytest.raises(UsageError, match=r"the state's numbers: 33, but the model of model\.path has room for 32"):
        require_room(Config, 8, 7, 33)


@pytest.mark.parametrize(("policy_class", "config_class", "model"), [
    (VLAPolicy, VLAConfig, "vlm"), (PI0Policy, PI0Config, "flow")])
def test_a_model_of_a_directory(policy_class, config_class, model, tmp_path):
    keys = {"chunk": 2, "instruction_tokens": 4}
    built = policy_class(config_class(**keys), IMAGE, Box(-1, 1, (2,))).eval()
    getattr(built, model).save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    loaded = policy_class(config_class(path=str(tmp_path), **keys), IMAGE, Box(-1, 1, (2,))).eval()
    tokens = loaded.encode(["1+2", "=", "12345"])
    assert tokens.tolist() == [[0, 4, 13, 5], [0, 0, 0, 16], [4, 5, 6, 7]]
    ours = torch.where(torch.from_numpy(tokens) == 0, 256, torch.from_numpy(tokens))
    images, noise = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8), torch.randn(3, built.noise_size)
    acted = loaded.act({"observation": images, "instruction": torch.from_numpy(tokens)}, noise)
    expected = built.act({"observation": images, "instruction": ours}, noise)
    assert torch.equal(acted.sampled, expected.sampled)
    torch.testing.assert_close(acted.logprobs, expected.logprobs)


@pytest.mark.parametrize("policy_class", [VLAPolicy, PI0Policy])
def test_a_directory_that_holds_no_model(policy_class, tmp_path):
    config = VLAConfig(path=str(tmp_path)) if policy_class is VLAPolicy else PI0Config(path=str(tmp_path))
    with pytest.raises(UsageError, match=r"is no Hugging Face directory: it has no config\.json"):
        policy_class(config, IMAGE, Box(-1, 1, (1,)))

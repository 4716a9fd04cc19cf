"""Variants by name, and tiny steps and micro-batches."""

import pytest
import torch

from rlinf_cli.api import LossInputs, Returns
from rlinf_grpo import VARIANTS
from rlinf_grpo.algorithm import GRPO
from rlinf_grpo.config import GRPOConfig


@pytest.fixture
def variant():
    """`variant(name, **keys)`: the algorithm with its preset, and keys on top of it."""

    def make(name="grpo", **keys):
        return GRPO(GRPOConfig(**{**VARIANTS[name][1], **keys}))

    return make


@pytest.fixture
def make_returns():
    """`make_returns(rewards, groups, ...)`: a step; a token a sample unless `lengths` says otherwise, at most 10."""

    def make(rewards, groups, lengths=None, truncated=(), logprobs=None, reference=None):
        lengths = lengths or [1] * len(rewards)
        cut = torch.tensor([place in truncated for place in range(len(rewards))])
        sampled = torch.tensor(logprobs) if logprobs else torch.full((sum(lengths),), -1.0)
        return Returns(torch.tensor(rewards), torch.tensor(groups, dtype=torch.int64), torch.tensor(lengths), cut, 10,
                       sampled, None if reference is None else torch.tensor(reference))

    return make


@pytest.fixture
def make_inputs():
    """`make_inputs(ratios, advantages, weights, ...)`: a micro-batch; `samples` says which tokens belong together."""

    def make(ratios, advantages, weights, samples=None, **more):
        old = torch.full((len(ratios),), -2.0)
        logprobs = (old + torch.tensor(ratios, dtype=torch.float64).log().float()).requires_grad_()
        owner = torch.tensor(samples if samples else [0] * len(ratios))
        given = {"sampled_logprobs": old} | {
            name: value if isinstance(value, torch.Tensor) else torch.tensor(value) for name, value in more.items()}
        return LossInputs(logprobs, old, torch.tensor(advantages), torch.tensor(weights), owner, **given)

    return make


@pytest.fixture
def step():
    """`step(algorithm, inputs)`: loss, gradient of each token's log-probability, and metrics, as plain numbers."""

    def run(algorithm, inputs):
        loss, metrics = algorithm.loss(inputs)
        assert not any(value.requires_grad for value in metrics.values())
        loss.backward()
        return loss.item(), inputs.logprobs.grad.tolist(), {name: value.item() for name, value in metrics.items()}

    return run

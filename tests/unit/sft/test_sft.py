"""Supervised fine-tuning: maximum likelihood of the responses in the data."""

import math
from types import SimpleNamespace

import pytest
import torch

import rlinf_sft
from rlinf_cli.api import LossInputs
from rlinf_cli.config.errors import ConfigError
from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_sft.algorithm import SFT
from rlinf_sft.config import SFTConfig


def inputs(probabilities, weights, samples):
    logprobs = torch.tensor(probabilities).log().requires_grad_()
    nothing = torch.zeros(len(weights))
    return LossInputs(logprobs, nothing, torch.ones(len(weights)), torch.tensor(weights), torch.tensor(samples), nothing)


def test_the_loss_is_the_negative_log_likelihood():
    given = inputs([0.5, 0.25, 1.0], [0.25, 0.25, 0.5], [0, 0, 1])
    loss, metrics = SFT(SFTConfig()).loss(given)
    loss.backward()
    assert loss.item() == pytest.approx(0.25 * math.log(2) + 0.25 * math.log(4))
    assert given.logprobs.grad.tolist() == [-0.25, -0.25, -0.5]
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {"actor/nll": 0.75 * math.log(2), "actor/target_prob": 0.125 + 0.0625 + 0.5})
    assert not any(value.requires_grad for value in metrics.values())


def test_parts_add_up():
    whole, metrics = SFT(SFTConfig()).loss(inputs([0.5, 0.25, 0.7], [0.5, 0.3, 0.2], [0, 0, 1]))
    parts = [SFT(SFTConfig()).loss(inputs([0.5, 0.25], [0.5, 0.3], [0, 0])),
             SFT(SFTConfig()).loss(inputs([0.7], [0.2], [0]))]
    assert sum(loss.item() for loss, _ in parts) == pytest.approx(whole.item())
    for name, value in metrics.items():
        assert sum(part[name].item() for _, part in parts) == pytest.approx(value.item())


def test_gradient_descent_raises_the_likelihood_of_the_data():
    logits = torch.zeros(3, requires_grad=True)
    targets, weights = torch.tensor([2, 2, 0]), torch.full((3,), 1 / 3)
    for _ in range(200):
        logprobs = torch.log_softmax(logits, 0)[targets]
        loss, _ = SFT(SFTConfig()).loss(LossInputs(logprobs, weights, weights, weights, targets, weights))
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - gradient).detach().requires_grad_()
    assert torch.softmax(logits, 0).tolist() == pytest.approx([1 / 3, 0, 2 / 3], abs=0.02)


def test_what_it_is():
    algorithm = SFT(SFTConfig(aggregation="sequence-mean"))
    assert algorithm.supervised
    assert SFTConfig().supervised
    assert algorithm.aggregation == "sequence-mean"
    assert (algorithm.needs_entropy, algorithm.needs_reference, algorithm.needs_recompute) == (False, False, False)


def test_the_extension():
    (extension,) = rlinf_sft.register_algorithms()
    assert extension.load_config() is SFTConfig
    assert isinstance(extension.load()(SFTConfig()), SFT)
    assert extension.preset["workflow"] == "supervised"


def test_it_does_not_go_with_generation():
    assert list(SFTConfig().problems_with(SimpleNamespace(workflow="supervised"))) == []
    (problem,) = SFTConfig().problems_with(SimpleNamespace(workflow="reasoning"))
    assert problem == ("workflow=reasoning generates responses, but algorithm.name=sft learns those in the data: "
                       "leave workflow out, or set workflow=supervised")


def test_the_user_is_told():
    with pytest.raises(ConfigError, match="workflow=reasoning generates responses"):
        check(resolve([], ["algorithm.name=sft", "workflow=reasoning"], {}, load_plugins(third_party=False)))

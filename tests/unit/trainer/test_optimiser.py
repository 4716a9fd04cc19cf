"""Schedules, weight decay, clipping: values worked out by hand."""

import pytest
import torch
from torch.nn import Parameter

from rlinf_torch.optimiser import Optimiser, learning_rate
from rlinf_torch.trainer_config import TorchTrainerConfig


def rates(total, **keys):
    return [learning_rate(TorchTrainerConfig(lr=1.0, **keys), step, total) for step in range(total)]


def test_constant():
    assert rates(4) == [1, 1, 1, 1]


def test_warm_up_ends_at_the_peak():
    assert rates(6, warmup_steps=4) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_linear():
    assert rates(6, schedule="linear", warmup_steps=2) == pytest.approx([0.5, 1, 1, 0.75, 0.5, 0.25])


def test_cosine():
    assert rates(4, schedule="cosine") == pytest.approx([1, 0.8535534, 0.5, 0.1464466])


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_past_the_end_it_stays_at_zero(schedule):
    config = TorchTrainerConfig(lr=1.0, schedule=schedule)
    assert [learning_rate(config, step, 5) for step in (5, 6, 100)] == pytest.approx([0, 0, 0])


def test_a_warm_up_longer_than_the_run():
    assert rates(2, warmup_steps=8, schedule="cosine") == [0.125, 0.25]


def made(**keys):
    parameters = {name: Parameter(torch.ones(shape)) for name, shape in (("matrix", (2, 2)), ("norm", 2), ("bias", 2))}
    return parameters, Optimiser(parameters, TorchTrainerConfig(**{"lr": 0.1, **keys}), 10)


def give(parameters, value):
    for parameter in parameters.values():
        parameter.grad = torch.full_like(parameter, value)


def test_norms_and_biases_do_not_decay():
    parameters, optimiser = made(weight_decay=0.5)
    give(parameters, 0.0)
    optimiser.step(optimiser.gradient_norm())
    assert parameters["matrix"].tolist() == [[pytest.approx(0.95)] * 2] * 2
    assert parameters["norm"].tolist() == parameters["bias"].tolist() == [1, 1]


def test_the_first_step_has_the_size_of_the_learning_rate():
    parameters, optimiser = made()
    give(parameters, 0.3)
    assert optimiser.step(optimiser.gradient_norm()) == 0.1
    assert parameters["bias"].tolist() == pytest.approx([0.9, 0.9])
    assert optimiser.steps == 1
    assert all(parameter.grad is None for parameter in parameters.values())


@pytest.mark.parametrize(("limit", "scale"), [(1.0, 1 / 6), (100.0, 1.0)])
def test_gradients_are_clipped_by_their_global_norm(limit, scale):
    parameters, optimiser = made(max_grad_norm=limit, betas=(0.0, 0.0))
    give(parameters, -3 / 2**0.5)
    norm = optimiser.gradient_norm()
    assert norm.item() == pytest.approx(6.0)
    optimiser.step(norm)
    assert optimiser.state()["bias.exp_avg"].tolist() == pytest.approx([-3 / 2**0.5 * scale] * 2, rel=1e-5)


def test_skipping_forgets_gradients_only():
    parameters, optimiser = made()
    give(parameters, 1.0)
    optimiser.skip()
    assert all(parameter.grad is None for parameter in parameters.values())
    assert optimiser.steps == 0
    assert optimiser.state() == {}
    assert parameters["bias"].tolist() == [1, 1]


def test_a_restored_optimiser_steps_as_the_one_it_came_from():
    parameters, optimiser = made(schedule="linear", warmup_steps=2, weight_decay=0.1)
    for value in (0.3, -0.2):
        give(parameters, value)
        optimiser.step(optimiser.gradient_norm())
    others, other = made(schedule="linear", warmup_steps=2, weight_decay=0.1)
    for name, parameter in parameters.items():
        others[name].data.copy_(parameter.data)
    other.restore({name: tensor.clone() for name, tensor in optimiser.state().items()}, optimiser.steps)
    for one, whose in ((optimiser, parameters), (other, others)):
        give(whose, 0.7)
        one.step(one.gradient_norm())
    assert all(torch.equal(parameters[name], others[name]) for name in parameters)

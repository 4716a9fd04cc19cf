"""Estimators of a divergence: values and gradients in expectation, by summing over all tokens of a small vocabulary."""

import math

import pytest
import torch

from rlinf_cli.rl.kl import KL_ESTIMATORS, adapted_coefficient, k1, k2, k3

LOGITS = torch.tensor([0.3, -1.2, 0.9, 0.0], dtype=torch.float64)
Q = torch.tensor([0.05, 0.2, 0.15, 0.6], dtype=torch.float64)


def divergence(p, q):
    return (p * (p / q).log()).sum()


def policy():
    logits = LOGITS.clone().requires_grad_()
    return logits, torch.log_softmax(logits, 0)


def gradient(value, logits):
    (found,) = torch.autograd.grad(value, logits)
    return found.tolist()


def exact_gradient(of):
    logits, logp = policy()
    return gradient(of(logp.exp()), logits)


def gradient_as_loss(estimator):
    """Of the expectation over tokens drawn from the policy, the draw itself held fixed."""
    logits, logp = policy()
    return gradient((logp.exp().detach() * estimator(logp, Q.log())).sum(), logits)


def gradient_as_reward(estimator):
    """Of the policy gradient with the estimate as what each token costs."""
    logits, logp = policy()
    cost = estimator(logp, Q.log()).detach()
    return gradient((logp.exp().detach() * cost * logp).sum(), logits)


def test_values_by_hand():
    logprobs, reference = torch.tensor([-1.0, -2.0]), torch.tensor([-1.5, -1.0])
    assert k1(logprobs, reference).tolist() == [0.5, -1.0]
    assert k2(logprobs, reference).tolist() == [0.125, 0.5]
    assert k3(logprobs, reference).tolist() == pytest.approx([math.exp(-0.5) - 1 + 0.5, math.e - 2])
    assert list(KL_ESTIMATORS) == ["k1", "k2", "k3"]


@pytest.mark.parametrize("estimator", [k1, k3])
def test_k1_and_k3_have_no_bias(estimator):
    p = torch.softmax(LOGITS, 0)
    assert (p * estimator(p.log(), Q.log())).sum().item() == pytest.approx(divergence(p, Q).item(), rel=1e-12)


def test_k2_is_biased_and_close_when_the_two_are_close():
    p = torch.softmax(LOGITS, 0)
    far = (p * k2(p.log(), Q.log())).sum().item() / divergence(p, Q).item()
    assert abs(far - 1) > 0.05
    near = torch.softmax(LOGITS + 0.01 * torch.tensor([1, -1, 2, 0]), 0)
    assert (p * k2(p.log(), near.log())).sum().item() == pytest.approx(divergence(p, near).item(), rel=0.02)


def test_k2_and_k3_are_never_negative_and_k1_is():
    p = torch.softmax(LOGITS, 0)
    assert (k1(p.log(), Q.log()) < 0).any()
    assert (k2(p.log(), Q.log()) >= 0).all()
    assert (k3(p.log(), Q.log()) >= 0).all()


def test_k3_scatters_less_than_k1():
    p = torch.softmax(LOGITS, 0)
    spread = [(p * (estimator(p.log(), Q.log()) - divergence(p, Q)).square()).sum() for estimator in (k1, k3)]
    assert spread[1] < spread[0]


def test_as_a_loss_k1_has_no_gradient():
    assert gradient_as_loss(k1) == pytest.approx([0.0] * 4, abs=1e-12)


def test_as_a_loss_k2_has_that_of_the_reverse_divergence():
    assert gradient_as_loss(k2) == pytest.approx(exact_gradient(lambda p: divergence(p, Q)), rel=1e-9)


def test_as_a_loss_k3_has_that_of_the_forward_divergence():
    forward = exact_gradient(lambda p: divergence(Q, p))
    assert gradient_as_loss(k3) == pytest.approx(forward, rel=1e-9)
    assert forward != pytest.approx(exact_gradient(lambda p: divergence(p, Q)), rel=0.1)


def test_in_the_reward_k1_has_that_of_the_reverse_divergence_and_the_others_do_not():
    reverse = exact_gradient(lambda p: divergence(p, Q))
    assert gradient_as_reward(k1) == pytest.approx(reverse, rel=1e-9)
    assert gradient_as_reward(k2) != pytest.approx(reverse, rel=0.1)
    assert gradient_as_reward(k3) != pytest.approx(reverse, rel=0.1)


@pytest.mark.parametrize(("divergence", "samples", "expected"), [
    (6.0, 100, 0.2),                        # on target
    (6.6, 100, 0.2 * (1 + 0.1 * 0.01)),     # a tenth over it
    (60.0, 100, 0.2 * (1 + 0.2 * 0.01)),    # far over it: as a fifth
    (0.0, 100, 0.2 * (1 - 0.2 * 0.01)),
    (0.0, 10**6, 0.2 * 0.8),                # more samples at once than the horizon
])
def test_the_coefficient_follows_its_target(divergence, samples, expected):
    assert adapted_coefficient(0.2, divergence, 6.0, samples, 10_000) == pytest.approx(expected, rel=1e-12)

"""PPO's advantages, losses and state, by hand."""

import math

import pytest
import torch

from rlinf_cli.api import LossInputs, Returns, ValueInputs
from rlinf_cli.plugins.testing import check_algorithm
from rlinf_ppo.algorithm import PPO, token_rewards
from rlinf_ppo.config import PPOConfig


def ppo(**keys):
    return PPO(PPOConfig(**{"normalize_advantages": False, "normalize_values": False, **keys}))


def returns(rewards, lengths, values, logprobs=None, reference=None):
    count = sum(lengths)
    return Returns(torch.tensor(rewards), torch.arange(len(rewards)), torch.tensor(lengths),
                   torch.zeros(len(rewards), dtype=torch.bool), 10, torch.tensor(logprobs or [-1.0] * count),
                   None if reference is None else torch.tensor(reference), torch.tensor(values))


def test_the_reward_comes_with_the_last_token_and_leaving_the_reference_costs_at_each():
    given = returns([1.0, 5.0], [3, 1], [0.0] * 4, logprobs=[-1.0, -2.0, -1.0, -0.5], reference=[-2.0, -1.0, -1.0, -1.5])
    assert token_rewards(given, 0.1).tolist() == pytest.approx([-0.1, 0.1, 1.0, 4.9])
    assert token_rewards(returns([1.0, 5.0], [3, 1], [0.0] * 4), 0.1).tolist() == [0, 0, 1, 5]


def test_advantages_by_hand():
    # gamma 0.5, lambda 0.5; rewards 0, 1: deltas 0 + 0.5 * 0.4 - 0.2 = 0 and 1 - 0.4 = 0.6
    found, metrics = ppo(gamma=0.5, gae_lambda=0.5).advantages(returns([1.0], [2], [0.2, 0.4]))
    assert found.tolist() == pytest.approx([0.15, 0.6])
    assert metrics == {}


def test_with_lambda_1_an_advantage_is_the_return_less_the_value():
    found, _ = ppo(gae_lambda=1.0).advantages(returns([1.0, 0.0], [2, 3], [0.25, 0.5, 0.1, 0.2, 0.3]))
    assert found.tolist() == pytest.approx([0.75, 0.5, -0.1, -0.2, -0.3])


def test_advantages_are_standardised_over_the_tokens_of_a_step():
    given = returns([1.0, 0.0], [2, 3], [0.25, 0.5, 0.1, 0.2, 0.3])
    found, _ = ppo(normalize_advantages=True).advantages(given)
    assert found.mean().item() == pytest.approx(0, abs=1e-6)
    assert found.double().var(correction=0).item() == pytest.approx(1, abs=1e-3)


def test_the_divergence_is_reported_with_its_weight():
    given = returns([1.0], [2], [0.0, 0.0], logprobs=[-1.0, -1.0], reference=[-1.5, -0.5])
    _, metrics = ppo(kl_coef=0.2).advantages(given)
    assert metrics["actor/kl_coef"] == 0.2
    assert metrics["actor/response_kl"] == 0.0  # 0.5 and -0.5
    assert metrics["actor/reference_kl"] == pytest.approx((math.exp(-0.5) - 0.5 + math.exp(0.5) - 1.5) / 2, rel=1e-5)


@pytest.mark.parametrize(("ratio", "advantage", "expected", "gradient"), [
    (1.0, 2.0, -2.0, -2.0), (1.5, 2.0, -2.4, 0.0), (0.5, -2.0, 1.6, 0.0), (0.5, 2.0, -1.0, -1.0)])
def test_the_loss_by_hand(ratio, advantage, expected, gradient):
    old = torch.tensor([-1.0])
    logprobs = (old + math.log(ratio)).requires_grad_()
    loss, metrics = ppo().loss(LossInputs(logprobs, old, torch.tensor([advantage]), torch.ones(1), torch.zeros(1).long(), old))
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert logprobs.grad.item() == pytest.approx(gradient, rel=1e-5)
    assert metrics["actor/clip_frac"].item() == (gradient == 0)


def test_entropy_is_kept_up():
    old, entropy = torch.tensor([-1.0, -1.0]), torch.tensor([2.0, 3.0], requires_grad=True)
    weights = torch.tensor([0.25, 0.75])
    loss, _ = ppo(entropy_coef=0.1).loss(LossInputs(old.clone().requires_grad_(), old, torch.zeros(2), weights,
                                                    torch.zeros(2).long(), old, entropy=entropy))
    loss.backward()
    assert loss.item() == pytest.approx(-0.1 * (0.5 + 2.25))
    assert entropy.grad.tolist() == pytest.approx([-0.025, -0.075])


def test_a_step_ends_early_once_the_policy_has_moved_enough():
    assert not ppo().enough({"actor/kl": 100.0})
    assert ppo(target_kl=0.01).enough({"actor/kl": 0.011})
    assert not ppo(target_kl=0.01).enough({"actor/kl": 0.01})


# ---- critic ----


def test_without_normalisation_the_critic_learns_the_returns():
    given = returns([1.0], [2], [0.25, 0.5])
    targets, metrics = ppo(gae_lambda=1.0).value_targets(given)
    assert targets.outputs.tolist() == [0.25, 0.5]
    assert targets.targets.tolist() == [1, 1]
    assert metrics == {"critic/explained_variance": 0.0, "critic/value/mean": 0.375, "critic/return/mean": 1.0}


def test_explained_variance_is_that_of_the_values_before_training():
    _, metrics = ppo(gae_lambda=1.0).value_targets(returns([0.0, 1.0], [1, 1], [0.0, 0.5]))
    assert metrics["critic/explained_variance"] == pytest.approx(0.75)


def test_the_critic_learns_returns_in_units_of_all_so_far():
    algorithm = ppo(normalize_values=True, gae_lambda=1.0)
    first = returns([10.0, 30.0], [1, 1], [0.0, 0.0])
    targets, _ = algorithm.value_targets(first)
    assert targets.targets.tolist() == pytest.approx([-1, 1])
    assert targets.outputs.tolist() == [0, 0]  # as it gave them: before the first step in units of the reward
    algorithm.state = algorithm.next_state(first)
    assert algorithm.values(torch.tensor([-1.0, 0.0, 2.0])).tolist() == pytest.approx([10, 20, 40])
    # values of the next step come back as the outputs that they were
    again = returns([10.0, 30.0], [1, 1], [10.0, 20.0])
    assert algorithm.value_targets(again)[0].outputs.tolist() == pytest.approx([-1, 0])


def test_the_value_loss_by_hand():
    values = torch.tensor([1.5, 1.1], requires_grad=True)
    inputs = ValueInputs(values, torch.ones(2), torch.tensor([3.0, 3.0]), torch.tensor([0.25, 0.75]))
    loss, metrics = ppo().value_loss(inputs)
    loss.backward()
    assert loss.item() == pytest.approx(0.25 * 1.62 + 0.75 * 1.805)
    assert values.grad.tolist() == pytest.approx([0.0, 0.75 * -1.9])
    assert metrics["critic/clip_frac"].item() == pytest.approx(0.25)


# ---- what steps leave to later ones ----


def test_the_weight_of_the_divergence_follows_its_target():
    # two responses that have left the reference by 1 nat each, in all
    given = returns([1.0, 1.0], [2, 1], [0.0] * 3, logprobs=[-1.0, -1.0, -1.0], reference=[-1.5, -1.5, -2.0])
    algorithm = ppo(kl_coef=0.1, kl_target=0.5, kl_horizon=20)
    assert algorithm.next_state(given)["kl_coef"] == pytest.approx(0.1 * (1 + 0.2 * 2 / 20))
    assert algorithm.state["kl_coef"] == 0.1
    assert ppo(kl_coef=0.1, kl_target=1.0).next_state(given)["kl_coef"] == pytest.approx(0.1)
    assert ppo(kl_coef=0.1).next_state(given)["kl_coef"] == 0.1
    algorithm.state = algorithm.next_state(given)
    assert algorithm.advantages(given)[1]["actor/kl_coef"] == algorithm.state["kl_coef"]


def test_actor_and_critic_come_to_the_same_state():
    given = returns([1.0, 0.0], [2, 3], [0.25, 0.5, 0.1, 0.2, 0.3], reference=[-1.5] * 5)
    one, other = (ppo(normalize_values=True, kl_coef=0.1, kl_target=1.0) for _ in range(2))
    for _ in range(3):
        one.advantages(given)
        other.value_targets(given)
        one.state, other.state = one.next_state(given), other.next_state(given)
    assert one.state == other.state
    assert set(one.state) == {"kl_coef", "weight", "mean", "variance"}


@pytest.mark.parametrize("keys", [
    {}, {"kl_coef": 0.1, "kl_target": 1.0, "entropy_coef": 0.01}, {"normalize_advantages": False, "kl_coef": 0.1},
    {"normalize_values": False, "value_clip": 0.0, "aggregation": "sequence-mean"}])
def test_the_contract(keys):
    check_algorithm(PPO, PPOConfig(**keys))

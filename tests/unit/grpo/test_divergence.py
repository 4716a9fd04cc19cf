"""KL to a reference model in the loss, and weights for engines that are not quite the trainer."""

import math

import pytest
import torch

OLD = -2.0
"""Log-probability of every token before the step, see `make_inputs`."""


@pytest.mark.parametrize(("estimator", "value", "gradient"), [
    ("k2", 0.5**2 / 2, 0.5),
    ("k3", math.exp(-0.5) - 1 + 0.5, 1 - math.exp(-0.5)),
    ("auto", math.exp(-0.5) - 1 + 0.5, 1 - math.exp(-0.5)),
])
def test_in_the_loss(variant, make_inputs, step, estimator, value, gradient):
    algorithm = variant(kl_coef=0.1, kl_estimator=estimator)
    given = make_inputs([1.0, 1.0], [0.0, 0.0], [0.5, 0.5], reference_logprobs=[OLD - 0.5, OLD])
    loss, found, metrics = step(algorithm, given)
    assert loss == pytest.approx(0.1 * 0.5 * value, rel=1e-5)
    assert found == pytest.approx([0.1 * 0.5 * gradient, 0], rel=1e-5)
    assert metrics["actor/reference_kl"] == pytest.approx(0.5 * (math.exp(-0.5) - 1 + 0.5), rel=1e-5)


def test_it_adds_to_the_surrogate(variant, make_inputs, step):
    given = make_inputs([1.0], [2.0], [1.0], reference_logprobs=[OLD - 1.0])
    loss, gradient, _ = step(variant(kl_coef=0.5, kl_estimator="k2"), given)
    assert loss == pytest.approx(-2 + 0.5 * 0.5)
    assert gradient == pytest.approx([-2 + 0.5])


def test_in_the_reward_the_loss_has_no_such_term(variant, make_inputs, step):
    given = make_inputs([1.0], [2.0], [1.0], reference_logprobs=[OLD - 1.0])
    loss, _, metrics = step(variant(kl_coef=0.5, kl_in="reward"), given)
    assert loss == pytest.approx(-2)
    assert "actor/reference_kl" not in metrics


def test_in_the_loss_rewards_are_left_alone(variant, make_returns):
    returns = make_returns([1.0, 0.0], [0, 0], logprobs=[-1.0, -1.0], reference=[-9.0, -1.0])
    with_it, metrics = variant(kl_coef=0.5).advantages(returns)
    assert metrics == {}
    assert with_it.tolist() == variant().advantages(returns)[0].tolist()


def test_a_divergence_alone_makes_samples_differ(variant, make_returns):
    returns = make_returns([1.0, 1.0], [0, 0], logprobs=[-1.0, -1.0], reference=[-1.5, -0.5])
    got, _ = variant(kl_coef=0.1, kl_in="reward", normalize="none").advantages(returns)
    assert got.tolist() == pytest.approx([-0.05, 0.05])


@pytest.mark.parametrize("name", ["grpo", "reinforce++"])
def test_rounding_between_engine_and_reference_is_no_reward(variant, make_returns, name):
    returns = make_returns([0.0, 0.0], [0, 0], logprobs=[-1.0, -1.0], reference=[-1.0 - 1e-6, -1.0])
    got, _ = variant(name, kl_coef=0.01, kl_in="reward").advantages(returns)
    assert got.abs().max() < 1e-3


class TestImportance:
    """Weights p(trainer) / p(engine): here 1, 1.5, 4 and 1/4."""

    RATIOS = (1.0, 1.5, 4.0, 0.25)

    @pytest.fixture
    def given(self, make_inputs):
        sampled = [OLD - math.log(ratio) for ratio in self.RATIOS]
        return make_inputs([1.0] * 4, [1.0, 1.0, 1.0, -2.0], [0.25] * 4, [0, 0, 1, 1], sampled_logprobs=sampled)

    @pytest.mark.parametrize(("keys", "weights", "beyond"), [
        ({}, [1.0, 1.5, 2.0, 0.25], [0, 0, 1, 0]),
        ({"importance_mode": "mask"}, [1.0, 1.5, 0.0, 0.0], [0, 0, 1, 1]),
        ({"importance_level": "sequence"}, [1.5, 1.5, 1.0, 1.0], [0, 0, 0, 0]),
        ({"importance_level": "sequence", "importance_cap": 1.2}, [1.2, 1.2, 1.0, 1.0], [1, 1, 0, 0]),
        ({"importance_level": "sequence", "importance_mode": "mask", "importance_cap": 1.2},
         [0.0, 0.0, 1.0, 1.0], [1, 1, 0, 0]),
    ])
    def test_losses_are_weighted(self, variant, given, step, keys, weights, beyond):
        algorithm = variant(**{"importance_cap": 2.0, **keys})
        loss, gradient, metrics = step(algorithm, given)
        assert algorithm.needs_recompute
        expected = [-0.25 * weight * advantage for weight, advantage in zip(weights, [1, 1, 1, -2], strict=True)]
        assert loss == pytest.approx(sum(expected), rel=1e-5)
        assert gradient == pytest.approx(expected, rel=1e-5)
        assert metrics["actor/importance/clip_frac"] == sum(beyond) / 4
        raw = [1.5, 1.5, 1.0, 1.0] if "importance_level" in keys else self.RATIOS
        assert metrics["actor/importance/mean"] == pytest.approx(sum(raw) / 4, rel=1e-5)
        k3 = [ratio - 1 - math.log(ratio) for ratio in self.RATIOS]
        assert metrics["actor/importance/kl"] == pytest.approx(sum(k3) / 4, rel=1e-4)

    def test_off_the_engine_does_not_matter(self, variant, given, step):
        loss, _, metrics = step(variant(), given)
        assert loss == pytest.approx(-0.25 * (3 - 2))
        assert not any(name.startswith("actor/importance") for name in metrics)

    def test_the_divergence_and_the_entropy_are_not_weighted(self, variant, make_inputs, step):
        given = make_inputs([1.0], [0.0], [1.0], sampled_logprobs=[OLD - 1.0], reference_logprobs=[OLD - 1.0],
                            entropy=torch.tensor([2.0], requires_grad=True))
        loss, _, _ = step(variant(importance_cap=9.0, kl_coef=0.1, kl_estimator="k2", entropy_coef=0.1), given)
        assert loss == pytest.approx(0.1 * 0.5 - 0.1 * 2.0)

"""Dr. GRPO, DAPO, RLOO, REINFORCE++ and GSPO by their presets: advantages, losses and gradients worked out by hand."""

import math

import pytest

from rlinf_cli.config.load import check, resolve
from rlinf_cli.plugins.loader import load_plugins
from rlinf_grpo import VARIANTS, register_algorithms
from rlinf_grpo.config import GRPOConfig

EPSILON = 1e-4
"""Added to every standard deviation."""


class TestDrGRPO:
    def test_advantages_are_not_divided_by_the_spread(self, variant, make_returns):
        got, _ = variant("dr-grpo").advantages(make_returns([1.0, 0.0, 0.0, 10.0, 30.0], [0, 0, 0, 1, 1]))
        assert got.tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3, -10, 10])

    def test_the_loss_divides_by_samples_and_the_longest_response_only(self, variant, make_inputs, step):
        # two samples, of 1 and 3 tokens, at most 5: each token counts 1 / (2 * 5), so the longer one three times as much
        assert variant("dr-grpo").aggregation == "sequence-sum"
        given = make_inputs([1.0] * 4, [0.5, -0.5, -0.5, -0.5], [0.1] * 4, [0, 1, 1, 1])
        loss, gradient, _ = step(variant("dr-grpo"), given)
        assert loss == pytest.approx((-0.5 + 3 * 0.5) / 10)
        assert gradient == pytest.approx([-0.05, 0.05, 0.05, 0.05])

    def test_the_clip_is_that_of_ppo(self, variant, make_inputs, step):
        loss, gradient, _ = step(variant("dr-grpo"), make_inputs([1.25, 0.75], [1.0, -1.0], [0.1, 0.1]))
        assert loss == pytest.approx(0.1 * (-1.2 + 0.8))
        assert gradient == [0, 0]


class TestRLOO:
    def test_the_baseline_is_the_mean_of_the_others(self, variant, make_returns):
        got, _ = variant("rloo").advantages(make_returns([1.0, 0.0, 2.0, 5.0, 1.0], [0, 0, 0, 1, 1]))
        assert got.tolist() == pytest.approx([1 - 1, 0 - 1.5, 2 - 0.5, 5 - 1, 1 - 5])

    def test_the_divergence_of_a_whole_sample_comes_off_its_reward(self, variant, make_returns):
        # k1 summed over the samples: 0.3 - 0.1 = 0.2, 0, -0.4; rewards become 0.9, 0, 2.2
        returns = make_returns([1.0, 0.0, 2.0], [0, 0, 0], [2, 1, 1], logprobs=[-1.0, -1.0, -1.0, -1.0],
                               reference=[-1.3, -0.9, -1.0, -0.6])
        got, metrics = variant("rloo", kl_coef=0.5).advantages(returns)
        assert got.tolist() == pytest.approx([0.9 - 1.1, 0 - 1.55, 2.2 - 0.45], rel=1e-5)
        k3 = [math.exp(-0.3) - 1 + 0.3, math.exp(0.1) - 1 - 0.1, 0, math.exp(0.4) - 1 - 0.4]
        assert metrics == pytest.approx({"actor/reference_kl": sum(k3) / 4}, rel=1e-4)

    def test_the_loss_is_advantage_times_log_probability_of_the_response(self, variant, make_inputs, step):
        # gradient of -(1 / 3) * sum of A_i * log p(response i), over the constant 10
        given = make_inputs([1.0] * 5, [0.0, -1.5, -1.5, 1.5, 1.5], [1 / 30] * 5, [0, 1, 1, 2, 2])
        loss, gradient, _ = step(variant("rloo"), given)
        assert loss == pytest.approx(0, abs=1e-7)
        assert gradient == pytest.approx([0, 0.05, 0.05, -0.05, -0.05])


class TestReinforcePlusPlus:
    def test_advantages_are_standardised_over_tokens(self, variant, make_returns):
        # tokens 1, 0, 0, 0: mean 1/4, variance (9/16 + 3 * 1/16) / 4 = 3/16
        got, metrics = variant("reinforce++").advantages(make_returns([1.0, 0.0], [0, 1], [1, 3]))
        std = math.sqrt(3 / 16) + EPSILON
        assert got.tolist() == pytest.approx([0.75 / std] + [-0.25 / std] * 3)
        assert metrics == {}

    def test_the_divergence_still_to_come_comes_off_each_token(self, variant, make_returns):
        # k1: 1 | 2, 0, -1; to go: 1 | 1, -1, -1; values 1 - 0.1 | 0 - 0.1, 0.1, 0.1
        # mean 1/4, variance (0.65^2 + 0.35^2 + 2 * 0.15^2) / 4 = 0.1475
        returns = make_returns([1.0, 0.0], [0, 1], [1, 3], logprobs=[-1.0, -1.0, -1.0, -1.0],
                               reference=[-2.0, -3.0, -1.0, 0.0])
        got, metrics = variant("reinforce++", kl_coef=0.1).advantages(returns)
        std = math.sqrt(0.1475) + EPSILON
        assert got.tolist() == pytest.approx([0.65 / std, -0.35 / std, -0.15 / std, -0.15 / std], rel=1e-5)
        k3 = [math.exp(-1), math.exp(-2) + 1, 0, math.e - 2]
        assert metrics == pytest.approx({"actor/reference_kl": sum(k3) / 4}, rel=1e-5)

    def test_with_a_baseline_the_group_mean_goes_first(self, variant, make_returns):
        # 1, 0 -> 1/2, -1/2; 3, 1 -> 1, -1 (three tokens); mean -1/3, variance (25 + 1 + 64 + 3 * 16) / 36 / 6 = 23/36
        got, _ = variant("reinforce++", baseline="group").advantages(
            make_returns([1.0, 0.0, 3.0, 1.0], [0, 0, 1, 1], [1, 1, 1, 3]))
        std = math.sqrt(23 / 36) + EPSILON
        assert got.tolist() == pytest.approx([x / std for x in (5 / 6, -1 / 6, 4 / 3, -2 / 3, -2 / 3, -2 / 3)])

    def test_the_loss_is_the_clipped_one_of_each_token(self, variant, make_inputs, step):
        given = make_inputs([1.0, 1.5, 0.9, 0.5], [1.5, 0.5, -0.5, -1.5], [0.25] * 4, [0, 1, 1, 1])
        loss, gradient, _ = step(variant("reinforce++"), given)
        assert loss == pytest.approx(0.25 * (-1.5 - 1.2 * 0.5 + 0.9 * 0.5 + 0.8 * 1.5))
        assert gradient == pytest.approx([-0.25 * 1.5, 0, 0.25 * 0.45, 0])

    def test_one_sample_a_prompt_is_enough(self, variant, make_returns):
        got, _ = variant("reinforce++").advantages(make_returns([3.0, 1.0], [0, 1]))
        assert got.tolist() == pytest.approx([1 / (1 + EPSILON), -1 / (1 + EPSILON)])


class TestGSPO:
    def test_the_ratio_is_of_sequences(self, variant, make_inputs, step):
        # logs 0.0004 and 0.0002: mean 0.0003, inside the clip, though the first token alone would touch its edge
        given = make_inputs([math.exp(0.0004), math.exp(0.0002)], [2.0, 2.0], [0.5, 0.5], [0, 0])
        loss, gradient, metrics = step(variant("gspo"), given)
        ratio = math.exp(0.0003)
        assert loss == pytest.approx(-2 * ratio, rel=1e-6)
        assert gradient == pytest.approx([-2 * ratio / 2] * 2, rel=1e-6)
        assert metrics["actor/ratio"] == pytest.approx(ratio, rel=1e-6)
        assert metrics["actor/clip_frac"] == 0

    def test_a_response_is_clipped_whole(self, variant, make_inputs, step):
        # three responses of 1, 2, 1 tokens, a third each: above 1.0004, below 0.9997, and free
        given = make_inputs([1.001, 0.999, 0.9995, 0.999], [1.0, -2.0, -2.0, 3.0], [1 / 3, 1 / 6, 1 / 6, 1 / 3],
                            [0, 1, 1, 2])
        loss, gradient, metrics = step(variant("gspo"), given)
        assert loss == pytest.approx((-1.0004 + 2 * 0.9997 - 3 * 0.999) / 3, rel=1e-6)
        assert gradient == pytest.approx([0, 0, 0, -0.999], rel=1e-6)
        assert metrics["actor/clip_high_frac"] == pytest.approx(1 / 3)
        assert metrics["actor/clip_low_frac"] == pytest.approx(1 / 3)

    def test_responses_count_the_same(self, variant, make_returns):
        assert variant("gspo").aggregation == "sequence-mean"
        got, _ = variant("gspo").advantages(make_returns([1.0, 0.0], [0, 0]))
        assert got.tolist() == pytest.approx([0.5 / (0.5**0.5 + EPSILON), -0.5 / (0.5**0.5 + EPSILON)])


class TestDAPO:
    def test_the_upper_clip_is_the_higher_one(self, variant, make_inputs, step):
        loss, gradient, _ = step(variant("dapo"), make_inputs([1.25, 1.3, 0.75], [1.0, 1.0, -1.0], [1 / 3] * 3))
        assert loss == pytest.approx((-1.25 - 1.28 + 0.8) / 3)
        assert gradient == pytest.approx([-1.25 / 3, 0, 0])
        assert variant("dapo").aggregation == "token-mean"

    def test_only_prompts_whose_samples_differ_take_part(self, variant, make_returns):
        algorithm = variant("dapo")
        assert algorithm.rounds > 1
        taken = algorithm.takes_part(make_returns([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [0, 0, 1, 1, 2, 2], [1, 10, 1, 1, 1, 1]))
        assert taken.tolist() == [False, False, True, True, False, False]

    def test_responses_near_the_limit_are_punished(self, variant, make_returns):
        # limit 10, buffer 2: nothing up to 8, then -1/2 and -1; rewards 1, 1/2, -1
        got, metrics = variant("dapo", normalize="none").advantages(make_returns([1.0, 1.0, 0.0], [0, 0, 0], [8, 9, 10]))
        assert got.tolist() == pytest.approx([1 - 1 / 6, 1 / 2 - 1 / 6, -1 - 1 / 6])
        assert metrics == pytest.approx({"actor/overlong_penalty": 0.5})


class TestEveryVariant:
    @pytest.mark.parametrize("name", VARIANTS)
    def test_equal_rewards_teach_exactly_nothing(self, variant, make_returns, name):
        for size in (1, 4):
            returns = make_returns([1 / 3] * (3 * size), [0] * size + [1] * size + [2] * size, [1, 2, 3] * size)
            got, _ = variant(name, overlong_buffer=0.0).advantages(returns)
            assert got.tolist() == [0.0] * len(got)

    @pytest.mark.parametrize("name", sorted({*VARIANTS} - {"reinforce++"}))
    def test_a_group_of_one_is_zero_beside_others(self, variant, make_returns, name):
        got, _ = variant(name, overlong_buffer=0.0).advantages(make_returns([5.0, 0.0, 1.0], [0, 1, 1]))
        assert got[0].item() == 0.0
        assert got[1].item() < 0 < got[2].item()

    @pytest.mark.parametrize("name", VARIANTS)
    def test_resolves_with_the_built_in_task(self, name):
        config = resolve([], [f"algorithm.name={name}"], {}, load_plugins(third_party=False))
        check(config)
        assert config.settings("algorithm") == GRPOConfig(**VARIANTS[name][1])

    @pytest.mark.parametrize("name", VARIANTS)
    def test_can_be_set_key_by_key(self, name):
        plugins = load_plugins(third_party=False)
        by_hand = [f"algorithm.{key}={value}" for key, value in VARIANTS[name][1].items()]
        assert resolve([], by_hand, {"algo": "grpo"}, plugins).settings("algorithm") == resolve(
            [], [], {"algo": name}, plugins).settings("algorithm")

    def test_are_all_one_implementation(self):
        assert {(one.target, one.config) for one in register_algorithms()} == {
            ("rlinf_grpo.algorithm:GRPO", "rlinf_grpo.config:GRPOConfig")}

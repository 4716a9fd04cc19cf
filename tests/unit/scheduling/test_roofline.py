"""Seconds and bytes from a data sheet and a shape."""

import numpy as np
import pytest

from rlinf_cli.scheduling.hardware import MACHINES, Hardware
from rlinf_cli.scheduling.lengths import lognormal
from rlinf_cli.scheduling.problem import Problem, Stage
from rlinf_cli.scheduling.roofline import LEFT, MOST_SLOTS, MOVE_S, SYNC_S, Roofline, Work
from rlinf_cli.scheduling.shapes import SHAPES, Shape

H100, H200, A100 = (MACHINES[name] for name in ("h100", "h200", "a100"))
SEVEN = SHAPES["qwen2.5-7b"]
WORK = Work(lognormal(8000, 0.8, 512, 27648), 16)
TINY = Shape("tiny", layers=2, hidden=8, heads=2, kv_heads=1, intermediate=16, vocab=32, head_dim=4)


def of(name="qwen2.5-7b", unit=1, machine=H100, work=WORK):
    return Roofline(machine, SHAPES[name], work, unit)


class TestWork:
    def test_contexts_of_constant_lengths(self):
        work = Work(np.full(8, 1000), prompt_tokens=200)
        assert work.decode_context == 700
        assert work.pass_context == 600
        assert work.longest == 1200

    def test_long_responses_are_under_way_for_longer(self):
        assert Work(np.array([10, 1000]), prompt_tokens=0).decode_context == pytest.approx((10**2 + 1000**2) / (2 * 1010))


class TestSeconds:
    def test_a_decode_step_of_a_7b_model_is_what_its_weights_and_keys_take(self):
        weights, keys = 14.14e9 / (3.35e12 * 0.7), WORK.decode_context * 57344 / (3.35e12 * 0.7)
        assert of().decode_step_s(1) == pytest.approx(0.0015 + 28 * 15e-6 + weights + keys, rel=0.01)
        assert of().decode_step_s(101) - of().decode_step_s(1) == pytest.approx(100 * keys)

    def test_more_bandwidth_makes_it_faster(self):
        assert of(machine=H200).decode_step_s(64) < of().decode_step_s(64) < of(machine=A100).decode_step_s(64)

    def test_two_devices_halve_what_is_read_but_not_the_fixed_part(self):
        assert of().decode_step_s(64) / 2 < of(unit=2).decode_step_s(64) < of().decode_step_s(64)

    def test_it_is_bound_by_flops_where_keys_are_short_and_many(self):
        slow = Hardware("slow", 1e12, 3e12, 80e9, 1e12, 1e12, 1e12)
        short = Work(np.full(8, 16), prompt_tokens=16)
        per_response = (of(machine=slow, work=short).decode_step_s(256) - of(machine=slow, work=short).decode_step_s(128)) / 128
        assert per_response == pytest.approx(SEVEN.token_flops(short.decode_context) / (1e12 * 0.45))

    def test_experts_read_more_the_more_responses_there_are(self):
        few, many = of("qwen3-30b-a3b", 2).decode_step_s(1), of("qwen3-30b-a3b", 2).decode_step_s(64)
        keys = 63 * of("qwen3-30b-a3b", 2).cache_bytes * WORK.decode_context / (3.35e12 * 0.7)
        assert many - few > keys + 0.005

    def test_training_is_forward_backward_and_forward_again(self):
        ratio = of().training_s(4000) / of().forward_s(4000)
        assert ratio == pytest.approx(4 * 0.45 / 0.4)
        assert of().training_s(6000) == pytest.approx(1.6e-4, rel=0.1)

    def test_what_devices_tell_each_other_makes_larger_units_less_efficient(self):
        costs = [unit * of(unit=unit).training_s(6000) for unit in (1, 2, 4, 8)]
        assert costs == sorted(costs)
        assert costs[-1] > 1.2 * costs[0]

    def test_new_weights(self):
        assert of().sync_s() == pytest.approx(SYNC_S + 15.23e9 / 30e9, rel=0.01)
        assert of(unit=8).sync_s() - SYNC_S == pytest.approx((of().sync_s() - SYNC_S) / 8)

    def test_what_is_moved_when_roles_change_places(self):
        pcie = 64e9 * 0.7
        assert of().move_s("generate", 8) == pytest.approx(MOVE_S + 2 * 7.6156e9 / pcie, rel=0.001)
        assert of().move_s("train", 8) == pytest.approx(MOVE_S + (2 + 12 / 8) * 7.6156e9 / pcie, rel=0.001)


class TestMemory:
    def test_slots_are_what_fits_beside_the_weights(self):
        expected = (80e9 * 0.92 - 15.23e9 - 8e9) / (57344 * WORK.decode_context)
        assert of().slots == int(expected)
        assert of(machine=H200).slots > 1.5 * of().slots

    def test_an_engine_has_no_more_than_it_is_configured_for(self):
        assert of("qwen2.5-1.5b").slots == of("qwen2.5-1.5b", 8).slots == MOST_SLOTS

    def test_a_model_that_does_not_fit_has_none(self):
        assert of("qwen2.5-32b").slots == 0
        with pytest.raises(ValueError, match=r"qwen2.5-32b does not fit on 1 h100"):
            of("qwen2.5-32b").decoding()

    def test_key_value_heads_are_copied_beyond_one_device_each(self):
        assert of(unit=8).cache_bytes == of(unit=4).cache_bytes == SEVEN.cache_bytes / 4

    @pytest.mark.parametrize("use", ["generate", "infer", "train"])
    def test_each_role_leaves_the_context_of_its_process(self, use):
        assert of(unit=2).memory(use).left == LEFT

    def test_generation_fills_the_device_but_for_what_is_reserved(self):
        assert of().memory("generate").fixed == pytest.approx(80e9 * 0.92 - 8e9 + LEFT, rel=0.01)

    def test_ranks_share_the_optimiser(self):
        memory = of(unit=2).memory("train")
        assert memory.shared == 12 * SEVEN.parameters
        assert memory.fixed > 3 * SEVEN.parameters
        assert of(unit=2).memory("infer").fixed < memory.fixed


class TestCosts:
    def test_the_curve_of_decode_steps_is_exact_at_its_points_and_near_between(self):
        cost = of().decoding()
        assert cost.step_s.xs[-1] == cost.slots == of().slots
        assert float(cost.step_s.at(64)) == pytest.approx(of().decode_step_s(64))
        assert float(cost.step_s.at(48)) == pytest.approx(of().decode_step_s(48), rel=0.01)

    def test_samples_of_a_group_share_their_prompt(self):
        alone = Roofline(H100, SEVEN, Work(WORK.lengths), 1).decoding().prefill_s
        assert of().decoding().prefill_s == pytest.approx(alone / 16)

    def test_prompts_cost_as_much_as_responses_in_a_pass(self):
        law = of().batch("infer").laws[0][1]
        assert law.sample_s == pytest.approx(1024 * law.token_s)
        assert of().batch("infer").step_s == 0
        assert of().batch("train").step_s == of().update_s() > 0

    def test_they_are_those_of_a_stage(self):
        problem = Problem((Stage("rollout", of(unit=2).decoding()), Stage("train", of(unit=4).batch("train"))), 8, WORK.lengths)
        assert problem.stages[0].cost.devices_per_replica == 2
        assert problem.stages[1].cost.devices_per_rank == 4

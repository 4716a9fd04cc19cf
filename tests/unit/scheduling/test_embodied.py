"""Simulator and policy in a cycle."""

import pytest

from rlinf_cli.scheduling.costs import stage_curve
from rlinf_cli.scheduling.embodied import LIBERO, MANISKILL, Environments, embodied_problem

FLAT = Environments("flat", 64, 10, simulate_s=1.0, simulate_each_s=0.0, act_s=0.5)
LINEAR = Environments("linear", 64, 10, simulate_s=0.0, simulate_each_s=0.25, act_s=0.25)


class TestCycle:
    def test_in_turn_the_two_add_up(self):
        assert FLAT.shared_s(8) == pytest.approx(10 * (1 + 0.5 * 8))

    def test_what_a_change_costs_is_paid_in_each_step(self):
        changing = Environments("changing", 64, 10, 1.0, 0.0, 0.5, change_s=0.3)
        assert changing.shared_s(8) - FLAT.shared_s(8) == pytest.approx(3)
        assert changing.split_s(8) == FLAT.split_s(8)

    def test_apart_one_half_is_simulated_while_the_other_is_answered(self):
        # one device simulates, and seven answer 32 environments at a time
        assert FLAT.split_s(8) == pytest.approx(10 * 2 * 0.5 * 32 / 7)

    def test_what_is_linear_in_both_gains_nothing_by_a_split(self):
        assert LINEAR.split_s(8) == pytest.approx(LINEAR.shared_s(8))

    def test_one_device_cannot_be_split(self):
        assert FLAT.split_s(1) == float("inf")


class TestProblems:
    def test_the_stage_of_the_cycle_costs_what_the_cycle_does(self):
        for inside, seconds in (("shared", MANISKILL.shared_s), ("split", MANISKILL.split_s)):
            problem = embodied_problem("h100", MANISKILL, 16, inside)
            curve = stage_curve(problem, problem.stages[0], 16)
            assert [curve[count] for count in (2, 8, 16)] == pytest.approx([seconds(count) for count in (2, 8, 16)])

    def test_the_cycle_is_of_two_roles_and_training_waits_for_all_of_it(self):
        cycle, train = embodied_problem("h100", LIBERO, 8, "shared").stages
        assert cycle.members == ("simulator", "policy")
        assert not train.streams
        assert train.trains

    def test_training_takes_a_third_of_the_answers(self):
        problem = embodied_problem("h100", MANISKILL, 8, "shared")
        train = stage_curve(problem, problem.stages[1], 8)[8] - problem.stages[1].cost.step_s
        assert train == pytest.approx(MANISKILL.act_s * 256 * 80 / 8 / 3)

    def test_a_slower_machine_is_slower(self):
        one, other = (embodied_problem(name, MANISKILL, 8, "shared") for name in ("h100", "a100"))
        assert stage_curve(other, other.stages[0], 8)[8] == pytest.approx(989 / 312 * stage_curve(one, one.stages[0], 8)[8])

    def test_many_devices_are_tried_at_64_numbers(self):
        assert len(embodied_problem("h100", LIBERO, 1024, "split").stages[0].counts) == 64
        assert embodied_problem("h100", LIBERO, 1024, "split").stages[0].counts[-1] == 1024

    def test_what_is_assumed_is_said(self):
        assert "assumed" in embodied_problem("h100", LIBERO, 8, "split").notes[-1]

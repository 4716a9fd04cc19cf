"""Problems and profiles of machines that nobody has measured."""

import numpy as np
import pytest

from rlinf_cli.errors import CapacityError, UsageError
from rlinf_cli.scheduling.analytic import (
    GRPO,
    GRPO_WITHOUT_INFERENCE,
    PPO,
    analytic_problem,
    analytic_profile,
    assumed_lengths,
    ranked,
)
from rlinf_cli.scheduling.costs import devices_of_unit, fits, stage_curve
from rlinf_cli.scheduling.fit import Node, problem_of
from rlinf_cli.scheduling.hardware import MACHINES
from rlinf_cli.scheduling.roofline import UNITS, Roofline, Work
from rlinf_cli.scheduling.shapes import SHAPES
from rlinf_cli.scheduling.tree import InTurn, Leaf

WORK = Work(assumed_lengths(2048, 27648), 16)
SHORT = Work(np.full(512, 500), 16, 500)


class TestProblems:
    def test_stages_of_grpo(self):
        problem = analytic_problem("h100", "qwen2.5-7b", GRPO, 64, WORK)
        assert [(stage.name, stage.after) for stage in problem.stages] == [
            ("rollout", ()), ("inference", ("rollout",)), ("train", ("inference",))]
        assert (problem.source, problem.hardware, problem.group) == ("analytic", "64 h100", 16)
        assert [stage.trains for stage in problem.stages] == [False, False, True]

    def test_stages_of_ppo(self):
        problem = analytic_problem("h100", "qwen2.5-7b", PPO, 64, WORK)
        assert len(problem.stages) == 5
        assert problem.stage("critic_train").after == ("actor_inference", "critic_inference")
        assert problem.stage("actor_train").weights == problem.stage("actor_inference").weights != "critic"

    def test_notes_say_that_nothing_was_measured_and_what_there_is_no_choice_in(self):
        notes = analytic_problem("h100", "qwen2.5-32b", GRPO, 16, WORK).notes
        assert notes[0].startswith("analytic (roofline)")
        assert notes[1:] == ("inference: only 8 devices a rank", "train: only 8 devices a rank")

    def test_who_shares_weights_has_the_same_ranks_and_changes_places_for_free(self):
        problem = analytic_problem("h100", "qwen2.5-32b", GRPO, 256, WORK)
        inference, train = problem.stage("inference"), problem.stage("train")
        assert devices_of_unit(inference) == devices_of_unit(train) > 1
        assert problem.switch(inference, train) == 0
        assert problem.switch(problem.stage("rollout"), train) > 0

    def test_a_switch_moves_what_one_has_away_and_what_the_other_needs_back(self):
        problem = analytic_problem("h100", "qwen2.5-7b", GRPO, 64, WORK)
        there, back = problem.switch_s["rollout", "train"], problem.switch_s["train", "rollout"]
        assert there == pytest.approx(back)
        assert problem.switch_s["rollout", "inference"] < there

    @pytest.mark.parametrize(("model", "devices"), [("qwen2.5-1.5b", 8), ("qwen2.5-7b", 64), ("qwen2.5-32b", 128)])
    def test_all_in_turn_on_all_devices_fits(self, model, devices):
        problem = analytic_problem("h100", model, GRPO, devices, WORK)
        tree = InTurn(InTurn(Leaf("rollout", devices), Leaf("inference", devices)), Leaf("train", devices))
        assert fits(problem, tree) == ""

    def test_a_replica_can_have_each_number_of_devices_with_which_it_fits(self):
        problem = analytic_problem("h100", "qwen2.5-32b", GRPO, 64, WORK)
        rollout = problem.stage("rollout").choices
        assert sorted(devices_of_unit(one) for one in rollout) == [2, 4, 8]
        seconds = [stage_curve(problem, one, 64)[64] for one in rollout]
        assert seconds == sorted(seconds)

    def test_who_shares_weights_has_the_same_choices(self):
        problem = analytic_problem("h100", "qwen2.5-7b", GRPO, 64, WORK)
        inference, train = (problem.stage(name).choices for name in ("inference", "train"))
        assert [devices_of_unit(one) for one in inference] == [devices_of_unit(one) for one in train]
        assert len(train) > 1

    def test_larger_machines_are_faster_and_larger_models_slower(self):
        def train_s(hardware, model):
            problem = analytic_problem(hardware, model, GRPO, 64, WORK)
            return float(stage_curve(problem, problem.stage("train"), 64)[64])

        assert train_s("a100", "qwen2.5-7b") > 2 * train_s("h100", "qwen2.5-7b")
        assert train_s("h100", "qwen2.5-14b") > 1.5 * train_s("h100", "qwen2.5-7b")


class TestDevicesOfARank:
    def test_a_small_model_is_trained_on_one_device_a_rank(self):
        assert ranked(MACHINES["h100"], SHAPES["qwen2.5-1.5b"], "train", 64, WORK)[0].unit == 1

    def test_memory_rules_out_what_would_be_faster(self):
        assert ranked(MACHINES["h100"], SHAPES["qwen2.5-14b"], "train", 64, WORK)[0].unit == 2
        assert ranked(MACHINES["h200"], SHAPES["qwen2.5-14b"], "train", 64, WORK)[0].unit == 1

    def test_the_fastest_of_those_that_fit_is_taken(self):
        one = ranked(MACHINES["h100"], SHAPES["qwen2.5-7b"], "generate", 64, WORK)[0]
        problem = analytic_problem("h100", "qwen2.5-7b", GRPO_WITHOUT_INFERENCE, 64, WORK)
        seconds = {unit: _alone(problem, unit) for unit in UNITS}
        assert one.unit == min(seconds, key=seconds.get)

    def test_what_others_leave_counts(self):
        alone = ranked(MACHINES["h100"], SHAPES["qwen2.5-14b"], "train", 64, WORK)[0]
        assert ranked(MACHINES["h100"], SHAPES["qwen2.5-14b"], "train", 64, WORK, others=20e9)[0].unit > alone.unit

    def test_too_few_devices_name_what_is_missing_and_what_would_do(self):
        with pytest.raises(CapacityError, match=r"2 h100 cannot train qwen2.5-32b: a device needs \d+ GB and has 74 GB; take 16"):
            analytic_problem("h100", "qwen2.5-32b", GRPO, 2, WORK)


def _alone(problem, unit):
    stage = problem.stage("rollout")
    one = Roofline(MACHINES["h100"], SHAPES["qwen2.5-7b"], WORK, unit)
    return stage_curve(problem, type(stage)("rollout", one.decoding()), 64)[64]


@pytest.mark.parametrize(("hardware", "model", "named"), [("b200", "qwen2.5-7b", "machine 'b200': known are h100, h200, a100"),
                                                          ("h100", "qwen9", "model 'qwen9': known are qwen2.5-1.5b")])
def test_what_is_not_known_is_named_with_what_is(hardware, model, named):
    with pytest.raises(UsageError, match=named):
        analytic_problem(hardware, model, GRPO, 8, SHORT)


USES = {"rollout": "generate", "reward": None, "reference": "infer", "actor": "train"}


class TestProfiles:
    def test_roles_and_what_is_said_of_them(self):
        profile = analytic_profile("h100", "qwen2.5-7b", USES, 16, SHORT)
        assert (profile.source, profile.hardware) == ("analytic", "16 h100")
        assert not profile.roles["reward"].needs_device
        assert profile.roles["rollout"].decoding
        assert profile.roles["actor"].batches

    def test_a_fit_finds_the_laws_again(self):
        profile = analytic_profile("h100", "qwen2.5-7b", USES, 16, SHORT)
        nodes = [Node("rollout"), Node("reference", ("rollout",)), Node("actor", ("reference",), trains=True)]
        fitted = problem_of(profile, nodes, devices=16, samples=512, group=16)
        direct = analytic_problem("h100", "qwen2.5-7b", GRPO, 16, SHORT)
        for name, same in (("rollout", "rollout"), ("actor", "train")):
            found, expected = (stage_curve(one, one.stage(stage), 16) for one, stage in ((fitted, name), (direct, same)))
            assert found[16] == pytest.approx(expected[16], rel=0.01)
        assert fitted.stage("actor").memory.shared == pytest.approx(direct.stage("train").memory.shared, rel=0.01)
        assert fitted.device_memory == direct.device_memory


def test_assumed_lengths_have_a_tail_that_the_limit_cuts():
    lengths = assumed_lengths(8192, 27648)
    assert lengths.max() == 27648
    assert 0.01 < np.mean(lengths == 27648) < 0.05
    assert lengths.mean() == pytest.approx(0.28 * 27648, rel=0.05)

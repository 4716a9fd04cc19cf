"""What is chosen among simulated plans: never slower than the references, and the same when costs were measured wrongly."""

from dataclasses import replace

import pytest

from rlinf_cli.scheduling.analytic import GRPO, analytic_problem, assumed_lengths
from rlinf_cli.scheduling.pipeline import Pipeline
from rlinf_cli.scheduling.problem import Curve, Decoding, Law
from rlinf_cli.scheduling.roofline import Work
from rlinf_cli.scheduling.search import search
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import text

ERRORS = [(0.71, 1.0), (0.85, 1.0), (1.0, 1.24), (1.0, 1.48), (0.71, 1.48)]
"""Factors on the times of generation and of training: from -29 % to +48 %."""


@pytest.mark.parametrize(("name", "devices"), [("grpo_7b", 64), ("grpo_7b", 128), ("ppo_7b", 16), ("ppo_7b", 32),
                                               ("moe_30b_a3b", 32), ("moe_30b_a3b", 64), ("moe_30b_a3b", 128)])
def test_no_reference_is_faster_than_what_is_chosen(workload, reference_plans, name, devices):
    known = workload(name, devices)
    best = min(predict(known.problem, plan).step_s for plan, _ in reference_plans(known).values())
    assert search(known.problem).best.prediction.step_s <= best * 1.0001


@pytest.fixture(scope="module")
def published():
    """GRPO of a 1.5B model on 128 devices: 512 prompts, 16 responses each, up to 28672 tokens with the prompt."""
    return analytic_problem("h100", "qwen2.5-1.5b", GRPO, 128, Work(assumed_lengths(8192, 27648), 16, 1024))


@pytest.mark.parametrize(("generation", "training"), ERRORS)
def test_the_published_case_has_one_optimum_under_all_errors(published, generation, training):
    chosen = search(published).best
    assert text(chosen.tree) == "rollout 128, inference 128, train 128"
    assert text(search(wrong(published, generation, training)).best.tree) == text(chosen.tree)


@pytest.mark.parametrize(("generation", "training"), ERRORS)
def test_where_splits_are_free_the_structure_stays(workload, generation, training):
    """Generation beside all the rest; how many devices it has follows the error."""
    known = workload("grpo_7b", 64).problem
    chosen = search(wrong(known, generation, training)).best
    pipeline = Pipeline(known, chosen)
    assert not pipeline.rivals[pipeline.stations[0]]
    before = len(search(known).best.devices["rollout"])
    assert len(chosen.devices["rollout"]) < before


def test_an_error_of_the_profile_costs_less_than_it_is(workload):
    """The plan that was chosen by right costs, where generation is faster than that, or training slower."""
    known = workload("grpo_7b", 64).problem
    chosen = search(known).best
    for (generation, training), most in zip(ERRORS, (0.17, 0.07, 0.13, 0.2, 0.5)):
        real = wrong(known, generation, training)
        regret = predict(real, chosen).step_s / search(real).best.prediction.step_s - 1
        assert 0 <= regret < most


def wrong(problem, generation, training):
    """With other times of generation and of training."""
    return replace(problem, stages=tuple(scaled(stage, generation, training) for stage in problem.stages))


def scaled(stage, generation, training):
    if isinstance(stage.cost, Decoding):
        curve = stage.cost.step_s
        return replace(stage, cost=replace(stage.cost, step_s=Curve(curve.xs, tuple(y * generation for y in curve.ys))))
    factor = training if stage.trains else 1.0
    laws = tuple((ranks, Law(*(seconds * factor for seconds in (law.chunk_s, law.sample_s, law.token_s))))
                 for ranks, law in stage.cost.laws)
    return replace(stage, cost=replace(stage.cost, laws=laws, step_s=stage.cost.step_s * factor))

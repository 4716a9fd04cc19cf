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
    """GRPO of a 1.5B model on 128 devices: 512 prompts, 16 responses each, up to 28672 tokens with the prompt; and its plan."""
    problem = analytic_problem("h100", "qwen2.5-1.5b", GRPO, 128, Work(assumed_lengths(8192, 27648), 16, 1024))
    return problem, search(problem).best


@pytest.mark.parametrize(("generation", "training"), ERRORS)
def test_the_published_case_has_one_optimum_under_all_errors(published, generation, training):
    problem, nominal = published
    chosen = search(wrong(problem, generation, training)).best
    assert text(chosen.tree) == text(nominal.tree) == "rollout 128, inference 128, train 128"
    assert chosen.units == nominal.units


@pytest.fixture(scope="module", params=[64, 128])
def split(request, workload):
    """GRPO of a 7B model with given costs, where generation has devices of its own, and its plan."""
    problem = workload("grpo_7b", request.param).problem
    return problem, search(problem).best


MOST = {64: (0.17, 0.07, 0.09, 0.16, 0.41), 128: (0.24, 0.07, 0.1, 0.23, 0.55)}
"""By devices, for each of the errors: what the plan of the wrong costs takes more than that of the real ones, at most."""


def test_where_splits_are_free_generation_stays_apart_and_the_split_follows_the_error(split):
    problem, nominal = split
    for (generation, training), most in zip(ERRORS, MOST[problem.devices], strict=True):
        real = wrong(problem, generation, training)
        chosen = search(real).best
        pipeline = Pipeline(real, chosen)
        assert not pipeline.rivals[pipeline.stations[0]]
        assert len(chosen.devices["rollout"]) < len(nominal.devices["rollout"])
        assert 0 <= predict(real, nominal).step_s / chosen.prediction.step_s - 1 < most


def test_what_a_wrong_split_costs_is_the_time_of_the_stages_that_it_has_starved(split):
    """They set the pace; generation, which has become faster, waits for them."""
    problem, nominal = split
    found = predict(wrong(problem, 0.71, 1.48), nominal)
    assert found.stages["inference"] + found.stages["train"] > 0.95 * found.step_s
    assert found.stages["rollout"] < 0.62 * found.step_s


def wrong(problem, generation, training):
    """With other times of generation and of training."""
    return replace(problem, stages=tuple(scaled(stage, generation, training) for stage in problem.stages))


def scaled(stage, generation, training):
    factor = generation if isinstance(stage.cost, Decoding) else training if stage.trains else 1.0
    spreads = tuple(replace(one, cost=times(one.cost, factor)) for one in stage.spreads)
    return replace(stage, cost=times(stage.cost, factor), spreads=spreads)


def times(cost, factor):
    if isinstance(cost, Decoding):
        return replace(cost, step_s=Curve(cost.step_s.xs, tuple(y * factor for y in cost.step_s.ys)))
    laws = tuple((ranks, Law(*(seconds * factor for seconds in (law.chunk_s, law.sample_s, law.token_s))))
                 for ranks, law in cost.laws)
    return replace(cost, laws=laws, step_s=cost.step_s * factor)

"""What a search hands back: the best plan, the others with what is wrong with them, or why there is none."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from rlinf_cli.errors import CapacityError
from rlinf_cli.scheduling.costs import fits
from rlinf_cli.scheduling.plan import Prediction
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory, Problem, Stage
from rlinf_cli.scheduling.search import Search, search
from rlinf_cli.scheduling.search_table import Table
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import leaves, text, width

NAMES = ("rollout", "inference", "train")


def chain(devices, lengths=None, memory=(), switch=4.0, **other):
    lengths = np.minimum(9000, np.random.default_rng(0).lognormal(7, 1, 256)).astype(np.int64) if lengths is None else lengths
    batches = (Batch(((1, Law(chunk, 0.0, token)),)) for chunk, token in ((0.01, 2e-5), (0.02, 8e-5)))
    costs = (Decoding(Curve((1.0, 64.0), (0.01, 0.02)), 64), *batches)
    stages = tuple(Stage(name, cost, NAMES[place - 1 : place] if place else (), trains=name == "train", least_chunk=8,
                         memory=memory[place] if memory else Memory())
                   for place, (name, cost) in enumerate(zip(NAMES, costs)))
    return Problem(stages, devices, lengths, group=8, switch_s=dict.fromkeys(permutations(NAMES, 2), switch), **other)


@pytest.fixture(scope="module")
def found():
    return search(chain(16))


def test_the_best_is_no_slower_than_any_other(found):
    others = [other.plan.prediction.step_s for other in found.others]
    assert found.best.prediction.step_s <= min(others)
    assert others == sorted(others)


def test_what_is_predicted_is_what_is_simulated(found):
    assert found.best.prediction.step_s == predict(chain(16), found.best).step_s
    assert found.simulated >= len(found.others) + 1
    assert found.considered > 100
    assert found.seconds > 0


def test_temporal_and_spatial_are_always_told_of(found):
    assert {"temporal", "spatial"} <= {found.best.mode, *(other.plan.mode for other in found.others)}
    temporal = next(other for other in found.others if other.plan.mode == "temporal")
    assert [leaf.devices for leaf in leaves(temporal.plan.tree)] == [16, 16, 16]
    assert temporal.why.startswith("+")
    assert temporal.why.endswith(f"bound by {temporal.plan.prediction.bound_by}")


def test_every_plan_is_complete_and_within_the_devices(found):
    for plan in [found.best, *(other.plan for other in found.others)]:
        assert [leaf.stage for leaf in leaves(plan.tree)] == list(NAMES)
        assert width(plan.tree) <= 16
        assert all(size % 8 == 0 and 8 <= size <= 256 for size in plan.chunk.values())
        assert set(plan.chunk) == set(NAMES)


def test_no_shape_comes_twice(found):
    shapes = [text(plan.tree).translate(str.maketrans("", "", "0123456789")) for plan in
              [found.best, *(other.plan for other in found.others)]]
    assert len(set(shapes)) == len(shapes)


def test_with_equal_lengths_all_take_turns():
    assert search(chain(8, np.full(512, 1000), switch=0.0)).best.mode == "temporal"


def test_with_a_heavy_tail_they_do_not(found):
    assert found.best.mode != "temporal"


def test_expensive_switches_are_avoided():
    assert search(chain(8, np.full(512, 1000), switch=1000.0)).best.mode == "spatial"


def test_the_top_is_as_long_as_asked_for():
    shapes = {other.plan.mode for other in search(chain(16), top=1).others}
    assert "temporal" in shapes
    assert len(search(chain(16), top=1).others) <= 3


def test_simulation_decides():
    """One that dislikes whatever the algebra likes best."""
    problem = chain(16)
    liked = Search(problem, 8, predict).candidates()[0].plan

    def contrary(problem, plan):
        return Prediction(100.0 if plan.tree == liked.tree else 1.0 + width(plan.tree))

    assert search(problem, simulate=contrary).best.tree != liked.tree


def test_generation_runs_ahead_only_on_devices_of_its_own():
    problem = chain(16, staleness=2)
    found = search(problem)
    assert found.best.staleness == 2
    assert found.best.prediction.step_s < 0.8 * search(replace(problem, staleness=0)).best.prediction.step_s
    for plan in [found.best, *(other.plan for other in found.others)]:
        mine = plan.devices["rollout"], plan.devices["train"]
        assert plan.staleness == 0 or not set(mine[0]) & set(mine[1])


def test_one_device_has_no_choice():
    found = search(chain(1))
    assert text(found.best.tree) == "rollout 1, inference 1, train 1"
    assert found.others == []


def test_a_stage_without_devices_takes_none():
    problem = chain(4)
    reward = Stage("reward", Batch(((1, Law(0.0, 0.001)),)), ("rollout",), needs_device=False)
    problem = replace(problem, stages=(problem.stages[0], reward, *problem.stages[1:]))
    found = search(problem)
    assert all(len(plan.devices["reward"]) == 0 for plan in [found.best, *(other.plan for other in found.others)])


@pytest.mark.parametrize("devices", [96, 200, 333])
def test_with_thinned_counts_it_is_within_a_percent_of_all_counts(devices):
    problem = chain(devices, np.random.default_rng(1).integers(100, 4000, 4096))
    thinned = Search(problem, 8, predict)
    exact = Table(thinned._graph, thinned._costs, False, units=devices).best()
    assert thinned.candidates()[0].seconds <= 1.01 * exact.seconds


# memory and what else is in the way

GB = 1e9


def test_memory_keeps_plans_out():
    # in turn, what the others leave is too much for training
    memory = (Memory(60 * GB, 0, 15 * GB), Memory(20 * GB, 0, 5 * GB), Memory(65 * GB, 0, 10 * GB))
    problem = chain(8, memory=memory, device_memory=80 * GB)
    found = search(problem)
    assert fits(problem, found.best.tree) == ""
    assert found.best.mode != "temporal"
    temporal = next(other for other in found.others if other.plan.mode == "temporal")
    assert temporal.plan.prediction is None
    assert temporal.why.startswith("train needs 85.0 GB")


def refusal(problem):
    with pytest.raises(CapacityError) as caught:
        search(problem)
    return str(caught.value)


def test_a_stage_that_fits_on_no_device_is_named_with_what_is_missing():
    memory = (Memory(), Memory(), Memory(100 * GB))
    assert refusal(chain(4, memory=memory, device_memory=80 * GB)) == (
        "no placement on 4 devices: train needs 100.00 GB on each of 1, and a device has 80.00 GB; "
        "20.00 GB more on each would do")


def test_or_with_the_number_of_devices_on_which_it_would():
    memory = (Memory(), Memory(), Memory(10 * GB, 400 * GB))
    assert refusal(chain(4, memory=memory, device_memory=80 * GB)).endswith("30.00 GB more on each would do, or 6 devices")


def test_stages_that_fit_alone_but_not_together():
    memory = (Memory(60 * GB, 0, 15 * GB), Memory(20 * GB, 0, 5 * GB), Memory(65 * GB, 0, 10 * GB))
    problem = chain(1, memory=memory, device_memory=80 * GB)
    assert refusal(problem) == ("no placement on 1 device: rollout, inference, train together do not fit into 80.00 GB on each; "
                                "5.00 GB more on each or 2 devices would do")
    assert search(replace(problem, device_memory=85 * GB)).best
    assert search(replace(problem, devices=2)).best


def test_numbers_of_devices_that_cannot_be_used():
    problem = chain(6)
    rollout = replace(problem.stages[0], counts=(8, 16))
    assert refusal(replace(problem, stages=(rollout, *problem.stages[1:]))) == (
        "no placement on 6 devices: rollout can use only 8, 16 of them; 8 devices would do")
    rollout = replace(problem.stages[0], cost=replace(problem.stages[0].cost, devices_per_replica=4))
    assert refusal(replace(problem, devices=2, stages=(rollout, *problem.stages[1:]))) == (
        "no placement on 2 devices: rollout can use only multiples of 4; 4 devices would do")

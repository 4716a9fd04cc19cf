"""What else a search decides: devices of a rank or replica, and by how many steps generation is ahead."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations, product

import numpy as np
import pytest

from rlinf_cli.errors import CapacityError
from rlinf_cli.scheduling.costs import feasible, fits
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory, Problem, Spread, Stage
from rlinf_cli.scheduling.search import AHEAD, rounded, search
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.simulate_events import run
from rlinf_cli.scheduling.tree import Leaf, parse

NAMES = ("rollout", "inference", "train")
GB = 1e9


def decoding(unit, first_s, each_s):
    return Decoding(Curve((1.0, 64.0), (first_s, first_s + 63 * each_s)), 64, unit)


def batch(unit, token_s):
    return Batch(((1, Law(0.01, 0.0, token_s)),), unit)


def chain(devices, lengths=None, memory=(), weights="", **other):
    """Of each role two kinds of ranks: one device, or four that are quicker with few samples, and dearer."""
    lengths = np.minimum(9000, np.random.default_rng(0).lognormal(7, 1, 256)).astype(np.int64) if lengths is None else lengths
    pairs = ((decoding(1, 0.01, 2e-4), decoding(4, 0.004, 7e-5)), (batch(1, 2e-5), batch(4, 6e-6)),
             (batch(1, 8e-5), batch(4, 2.4e-5)))
    stages = []
    for place, (name, (small, large)) in enumerate(zip(NAMES, pairs)):
        alone, spread = memory or (Memory(), Memory())
        stages.append(Stage(name, small, NAMES[place - 1 : place] if place else (), memory=alone, trains=name == "train",
                            weights=weights if place else "", least_chunk=8, spreads=(Spread(large, spread),)))
    return Problem(tuple(stages), devices, lengths, group=8, switch_s=dict.fromkeys(permutations(NAMES, 2), 4.0), **other)


def plans(found):
    return [found.best, *(other.plan for other in found.others if other.plan.prediction)]


@pytest.mark.parametrize("devices", [8, 16, 40])
def test_no_fixed_number_of_devices_a_rank_is_faster(devices):
    problem = chain(devices)
    fixed = [search(problem.spread(dict(zip(NAMES, units)))).best.prediction.step_s for units in product((1, 4), repeat=3)]
    assert search(problem).best.prediction.step_s <= 1.01 * min(fixed)


def test_every_plan_names_numbers_that_its_devices_are_divided_by():
    problem = chain(16)
    for plan in plans(search(problem)):
        assert set(plan.units) == set(NAMES)
        assert all(len(devices) % plan.units[name] == 0 for name, devices in plan.devices.items())


def test_a_prediction_is_that_of_the_numbers_that_the_plan_names():
    problem, plan = chain(16), Plan(parse("rollout 8 | inference 4 | train 4"), units={"rollout": 4, "train": 4})
    fixed = problem.spread(plan.units)
    assert [stage.unit for stage in fixed.stages] == [4, 1, 4]
    alone = replace(plan, units={})
    assert predict(problem, plan).step_s == predict(fixed, alone).step_s != predict(problem, alone).step_s
    assert run(problem, plan).step_s == pytest.approx(predict(problem, plan).step_s, rel=0.01)


def test_who_shares_weights_and_devices_has_the_same_numbers():
    problem = chain(16, np.full(512, 1000), weights="model")
    for plan in plans(search(problem)):
        if plan.devices["inference"] == plan.devices["train"]:
            assert plan.units["inference"] == plan.units["train"]


def test_copies_of_the_same_weights_that_are_spread_otherwise_change_places_at_a_price():
    problem = replace(chain(16, weights="model"), switch_s={("inference", "train"): 3.0})
    same, other = (problem.spread({"inference": 4, "train": unit}) for unit in (4, 1))
    assert same.switch(*same.stages[1:]) == 0.0
    assert other.switch(*other.stages[1:]) == 3.0


def test_what_does_not_fit_on_one_device_is_spread():
    problem = chain(8, memory=(Memory(100 * GB), Memory(30 * GB)), device_memory=80 * GB)
    found = search(problem)
    for plan in plans(found):
        assert set(plan.units.values()) == {4}
        assert fits(problem.spread(plan.units), plan.tree) == ""
    with pytest.raises(CapacityError, match=r"rollout needs 90\.00 GB on each of 4"):
        search(chain(8, memory=(Memory(100 * GB), Memory(90 * GB)), device_memory=80 * GB))


def test_a_rank_has_all_of_its_devices():
    tree = rounded(parse("rollout 7 | (inference 9, train 9)"), {"rollout": 4, "train": 2})
    assert tree == parse("rollout 4 | (inference 9, train 8)")
    assert not feasible(chain(16), replace(chain(16).stages[0], cost=decoding(4, 0.1, 0.1)), 7)[7]
    assert rounded(Leaf("reward", 0), {}) == Leaf("reward", 0)


# by how many steps


def ahead(steps, lengths, switch=4.0):
    fixed = replace(chain(4, lengths), switch_s=dict.fromkeys(permutations(NAMES, 2), switch))
    return replace(fixed.spread({}), staleness=steps)


def rank(plan):
    return plan.prediction.step_s * (1 + AHEAD) ** plan.staleness


LENGTHS = {
    "constant": np.full(256, 1500), "lognormal": None,
    "pareto": np.minimum(12000, (np.random.default_rng(1).pareto(1.5, 256) + 1) * 300).astype(np.int64)}


@pytest.mark.parametrize("switch", [0.0, 4.0])
@pytest.mark.parametrize("name", LENGTHS)
def test_no_smaller_number_of_steps_that_is_allowed_would_do_better(name, switch):
    found = [search(ahead(steps, LENGTHS[name], switch)).best for steps in range(4)]
    assert all(plan.staleness <= steps for steps, plan in enumerate(found))
    ranks = [rank(plan) for plan in found]
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(ranks))


def test_generation_is_not_ahead_by_more_than_helps():
    """Two steps keep all devices at work here, and a third one would only make samples older."""
    assert [search(ahead(steps, LENGTHS["constant"])).best.staleness for steps in (2, 3)] == [2, 2]
    assert search(ahead(3, LENGTHS["constant"], switch=0.0)).best.staleness == 0

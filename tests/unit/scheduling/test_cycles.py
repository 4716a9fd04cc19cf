import numpy as np
import pytest

from rlinf_cli.scheduling.cycles import apart
from rlinf_cli.scheduling.fit import Node, problem_of
from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Law
from rlinf_cli.scheduling.profile import BatchPoint, Profile, RoleProfile
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.tree import InTurn, Leaf

G, COUNT, STEPS = 0.1, 112, 6
SIMULATE = Batch(((1, Law()),), step_s=2 * 0.67 * G * STEPS)
"""A half takes 0.67 g a step, whatever is in it: `step_s` is of both."""
ACT = Batch(((1, Law(sample_s=8 * G * STEPS / COUNT)),))
"""g a step for all environments on 8 devices."""


class TestApart:
    def test_the_paper_s_shape_by_hand(self):
        """On 1 and 7 devices: a half is simulated in 0.67 g and answered in 0.5 * 8 / 7 g, so that a step takes 1.34 g."""
        found = apart([SIMULATE, ACT], 8, COUNT, 1)
        assert dict(found.widths)[8][0] in (1, 2)  # with two, the answer takes 0.667 g
        seconds = dict(found.cost.laws)[8].sample_s * COUNT / 8
        assert seconds == pytest.approx(1.34 * G * STEPS)

    def test_only_ranks_that_can_share_a_half_equally(self):
        found = apart([SIMULATE, ACT], 8, COUNT, 1, fits=(1, 2, 4, 7, 8))
        assert dict(found.widths)[8] == (1, 7)
        assert 7 not in dict(found.widths)
        assert dict(found.widths)[3] in ((1, 2), (2, 1))

    def test_one_device_cannot_be_shared_out(self):
        assert apart([SIMULATE, ACT], 1, COUNT, 1) is None
        assert apart([SIMULATE], 8, COUNT, 1) is None


def profile(in_turn):
    """Measured on 8 devices, with all environments and with half of them: the circle took `in_turn` seconds there."""
    points = {"environment": (2 * 0.67 * G * STEPS,) * 2, "rollout": (G * STEPS, G * STEPS / 2),
              "environment+rollout": (in_turn, in_turn - G * STEPS / 2), "actor": (0.33 * G * STEPS, 0.33 * G * STEPS / 2)}
    each = COUNT // 8
    return Profile("embodied", {name: RoleProfile(name, tuple(
        BatchPoint(8, size, size * STEPS, 1, took) for size, took in zip((each, each // 2), seconds, strict=True)))
        for name, seconds in points.items()}, lengths=(STEPS,) * COUNT)


def test_a_problem_knows_both_ways_and_what_they_take():
    nodes = [Node("environment+rollout", roles=("environment", "rollout"), streams=False),
             Node("actor", ("environment+rollout",), trains=True, streams=False)]
    problem = problem_of(profile(2.17 * G * STEPS), nodes, devices=8, samples=COUNT)
    other = problem.with_cycles_apart()
    plan = Plan(InTurn(Leaf("environment+rollout", 8), Leaf("actor", 8)))
    shared, split = (predict(one, plan).step_s for one in (problem, other))
    assert shared == pytest.approx(2.5 * G * STEPS, rel=0.01)
    assert split == pytest.approx(1.67 * G * STEPS, rel=0.01)
    assert other.with_cycles_apart() is None
    assert sum(dict(other.stages[0].widths)[8]) == 8
    assert np.isfinite(split)

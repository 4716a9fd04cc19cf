"""What stages cost by number of devices."""

import numpy as np
import pytest

from rlinf_cli.scheduling.costs import (
    chunk_curve,
    device_groups,
    extrapolated,
    feasible,
    fits,
    group_memory,
    memory_curve,
    service,
    stage_curve,
)
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory, Problem, Stage
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide

GB = 1e9
INF = float("inf")


def problem(*stages, **more):
    return Problem(stages, **{"devices": 8, "lengths": np.full(32, 10), **more})


LAWS = ((1, Law(1.0, 0.1, 0.01)),)


def batch(name="train", laws=LAWS, **more):
    cost = {key: more.pop(key) for key in ("devices_per_rank", "step_s", "most_ranks") if key in more}
    return Stage(name, Batch(laws, **cost), **more)


def rollout(slots=8, **more):
    unit = more.pop("devices_per_replica", 1)
    return Stage("rollout", Decoding(Curve((1.0, 2.0), (1.0, 1.0)), slots, unit), **more)


class TestCounts:
    def test_multiples_of_what_a_rank_needs(self):
        stage = batch(devices_per_rank=2)
        assert np.flatnonzero(feasible(problem(stage), stage, 8)).tolist() == [2, 4, 6, 8]

    def test_what_a_stage_lists(self):
        stage = batch(counts=(1, 4, 16))
        assert np.flatnonzero(feasible(problem(stage), stage, 8)).tolist() == [1, 4]

    def test_no_more_ranks_than_there_are_groups(self):
        stage = rollout()
        assert np.flatnonzero(feasible(problem(stage, group=16), stage, 8)).tolist() == [1, 2]

    def test_what_needs_no_device_has_none(self):
        stage = batch(needs_device=False)
        assert np.flatnonzero(feasible(problem(stage), stage, 8)).tolist() == [0]
        assert stage_curve(problem(stage), stage, 1).tolist() == [pytest.approx(1 + 32 * 0.2), INF]

    def test_a_helper_has_one_rank(self):
        stage = batch(most_ranks=1)
        assert np.flatnonzero(feasible(problem(stage), stage, 8)).tolist() == [1]


class TestSeconds:
    def test_ranks_share_what_depends_on_the_size(self):
        stage = batch(step_s=0.5)
        curve = stage_curve(problem(stage), stage, 4)
        assert curve[0] == INF
        assert curve[1:].tolist() == pytest.approx([0.5 + 1 + 6.4 / ranks for ranks in (1, 2, 3, 4)])

    def test_between_measured_ranks_rates_are_interpolated_and_beyond_them_kept(self):
        stage = batch(laws=((1, Law(sample_s=1.0)), (4, Law(sample_s=3.0))))
        curve = stage_curve(problem(stage), stage, 8)
        assert curve[[1, 2, 4, 8]].tolist() == pytest.approx([32.0, 2 * 16.0, 3 * 8.0, 3 * 4.0])

    def test_a_chunk_is_its_share(self):
        stage, decoder = batch(step_s=0.8), rollout()
        whole = problem(decoder, stage)
        assert chunk_curve(whole, stage, 2, 8)[2] == pytest.approx(1.0 + 0.2 * 8 / 2 + 0.8 / 4)
        assert chunk_curve(whole, decoder, 2, 8)[2] == pytest.approx(stage_curve(whole, decoder, 2)[2] / 4)

    def test_generation_on_replicas_of_several_devices(self):
        stage = rollout(devices_per_replica=2)
        assert stage_curve(problem(stage), stage, 4).tolist() == [INF, INF, 40.0, INF, 20.0]

    def test_each_sample_as_long_as_it_is(self):
        stage = batch()
        chunk, each, step = service(stage, 2, np.array([10, 30]))
        assert (chunk, step) == (1.0, 0.0)
        assert each.tolist() == pytest.approx([0.1, 0.2])


class TestMemory:
    def test_what_is_shared_is_divided(self):
        stage = batch(memory=Memory(fixed=1 * GB, shared=8 * GB, left=2 * GB))
        loaded, left = memory_curve(stage, 4)
        assert loaded[[1, 4]].tolist() == [9 * GB, 3 * GB]
        assert left[4] == 2 * GB

    def test_what_lies_in_main_memory_is_left_nowhere(self):
        assert memory_curve(batch(memory=Memory(left=2 * GB, host=True)), 1)[1].tolist() == [0, 0]

    def test_a_stage_needs_room_beside_what_the_others_leave(self):
        one = rollout(memory=Memory(fixed=6 * GB, left=1 * GB))
        two = batch(memory=Memory(shared=8 * GB, left=3 * GB))
        whole = problem(one, two, device_memory=8 * GB)
        shared = InTurn(Leaf("rollout", 2), Leaf("train", 2))
        assert group_memory(whole, shared) == {"rollout+train": 9 * GB}
        assert fits(whole, shared) == ("rollout needs 9.0 GB on each of devices 0-1 beside what train leaves there, "
                                       "and they have 8.0 GB")
        assert fits(whole, SideBySide(Leaf("rollout", 1), Leaf("train", 1))) == ""

    def test_groups_of_devices_by_who_uses_them(self):
        tree = SideBySide(InTurn(Leaf("a", 2), Leaf("b", 4)), Leaf("c", 1))
        assert device_groups(tree) == [(range(0, 2), ("a", "b")), (range(2, 4), ("b",)), (range(4, 5), ("c",))]


def test_what_lies_outside_of_what_was_measured_is_named():
    stage = Stage("rollout", Decoding(Curve((1.0, 4.0), (1.0, 2.0)), 64))
    trainer = batch(laws=((1, Law()), (2, Law())))
    whole = problem(stage, trainer)
    tree = InTurn(Leaf("rollout", 1), Leaf("train", 8))
    assert extrapolated(whole, tree) == ("rollout with 32 active responses (measured up to 4)",
                                         "train on 8 ranks (measured up to 2)")
    assert extrapolated(whole, InTurn(Leaf("rollout", 8), Leaf("train", 2))) == ()


def test_analytic_costs_are_computed_for_any_number():
    trainer = batch(laws=((1, Law()), (2, Law())))
    assert extrapolated(problem(trainer, source="analytic"), Leaf("train", 8)) == ()
    assert extrapolated(problem(trainer, source="emulated"), Leaf("train", 8)) != ()


def test_replicas_that_slow_each_other_down_beyond_what_was_measured():
    stage = Stage("rollout", Decoding(Curve((1.0, 64.0), (1.0, 2.0)), 64, slowdown=Curve((1.0, 2.0), (1.0, 1.5))))
    assert extrapolated(problem(stage), Leaf("rollout", 4)) == ("rollout on 4 replicas (measured up to 2)",)
    assert extrapolated(problem(stage), Leaf("rollout", 2)) == ()

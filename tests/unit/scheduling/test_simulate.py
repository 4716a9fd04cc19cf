"""Predicted times: of reference workloads, of small cases worked out by hand, and of generation that runs ahead, against a
simulation that knows nothing of stages."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Memory, Problem, Stage
from rlinf_cli.scheduling.simulate import predict, replay
from rlinf_cli.scheduling.simulate_events import run
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide

REFERENCE = [("grpo_7b", 64), ("grpo_7b", 128), ("ppo_7b", 16), ("ppo_7b", 32), ("moe_30b_a3b", 32), ("moe_30b_a3b", 64),
             ("moe_30b_a3b", 128)]


@pytest.mark.parametrize("mode", ["temporal", "spatial", "hybrid"])
@pytest.mark.parametrize(("name", "devices"), REFERENCE)
def test_the_reference_workloads_take_as_long_as_an_independent_simulation_says(workload, reference_plans, name, devices, mode):
    known = workload(name, devices)
    plan, seconds = reference_plans(known)[mode]
    assert plan.mode == mode or known.reference["best_hybrid_s"] == known.reference["best_spatial_s"]
    assert predict(known.problem, plan).step_s == pytest.approx(seconds, rel=0.03)


def rollout(slots=4, step=1.0, **more):
    return Stage("rollout", Decoding(Curve((1.0,), (step,)), slots), **more)


def trainer(token=0.1, after=("rollout",), **more):
    cost = Batch(((1, Law(token_s=token)),), step_s=more.pop("step_s", 0.0))
    return Stage("actor", cost, after, trains=True, **more)


def problem(*stages, lengths=(4, 4, 4, 4), **more):
    return Problem(stages, 2, np.array(lengths), **more)


TEMPORAL = Plan(InTurn(Leaf("rollout", 2), Leaf("actor", 2)))
SPATIAL = Plan(SideBySide(Leaf("rollout", 1), Leaf("actor", 1)))


class TestSynchronous:
    def test_in_turn(self):
        switches = {("rollout", "actor"): 1.0, ("actor", "rollout"): 2.0}
        made = problem(rollout(), trainer(), sync_s=0.5, step_s=0.25, switch_s=switches)
        found = predict(made, TEMPORAL)
        assert found.step_s == pytest.approx(2.0 + 4.0 + 1.0 + 0.8 + 0.5 + 0.25)
        assert found.stages == pytest.approx({"rollout": 4.0, "actor": 0.8})
        [states] = found.busy.values()
        assert sum(states.values()) == pytest.approx(found.step_s)
        assert states["switch"] == pytest.approx(3.0)
        assert states["idle"] == pytest.approx(0.25)

    def test_the_same_weights_change_places_for_free(self):
        switches = {("rollout", "actor"): 1.0, ("actor", "rollout"): 2.0}
        made = problem(rollout(weights="policy"), trainer(weights="policy"), switch_s=switches)
        assert predict(made, TEMPORAL).step_s == pytest.approx(4.8)

    def test_side_by_side_training_begins_with_what_has_come(self):
        made = problem(rollout(slots=2), trainer(token=0.5), lengths=(4, 4, 4, 4))
        assert predict(made, SPATIAL).step_s == pytest.approx(4 + 4 + 2 * 2.0)  # two more responses after the last
        waits = problem(rollout(slots=2), trainer(token=0.5, streams=False))
        assert predict(waits, SPATIAL).step_s == pytest.approx(4 + 4 + 4 * 2.0)

    def test_a_group_leaves_with_its_last_response(self):
        made = problem(rollout(), trainer(token=0.1), lengths=(1, 9, 2, 2), group=2)
        assert predict(made, SPATIAL).step_s == pytest.approx(9 + 1.0)

    @pytest.mark.parametrize(("whole_samples", "end"), [(False, 9 + 0.5 * 9), (True, 9 + 1.0 * 9)])
    def test_nobody_helps_with_the_last_sample(self, whole_samples, end):
        """The longest of three comes last, and is trained by one of two ranks."""
        made = Problem((rollout(), trainer(token=1.0)), 3, np.array([2, 2, 9]), whole_samples=whole_samples)
        plan = Plan(SideBySide(Leaf("rollout", 1), Leaf("actor", 2)), {"actor": 1})
        assert predict(made, plan).step_s == pytest.approx(end)
        assert run(made, plan, 3).step_s == pytest.approx(end)

    def test_chunks(self):
        made = problem(rollout(slots=1), trainer(token=0.5), lengths=(2, 2, 2, 2))
        ends = {1: 8 + 1.0, 2: 8 + 2.0, 4: 8 + 4.0}
        for chunk, seconds in ends.items():
            assert predict(made, Plan(SPATIAL.tree, {"actor": chunk})).step_s == pytest.approx(seconds)

    def test_a_helper_takes_no_device(self):
        judge = Stage("reward", Batch(((1, Law(sample_s=0.5)),)), ("rollout",), needs_device=False)
        made = problem(rollout(), judge, trainer(after=("reward",)))
        plan = Plan(InTurn(InTurn(Leaf("rollout", 2), Leaf("reward", 0)), Leaf("actor", 2)))
        # its devices make what it takes: when its turn comes, all of it is there
        assert predict(made, plan).step_s == pytest.approx(4 + 4 * 0.5 + 0.8)

    def test_what_is_far_costs_time(self):
        made = problem(rollout(), trainer(), transfer_s={("rollout", "actor"): 3.0})
        assert predict(made, SPATIAL).step_s == pytest.approx(4 + 3 + 4 * 0.4)

    def test_memory_and_what_was_not_measured_are_told(self):
        made = problem(rollout(memory=Memory(fixed=2e9)), trainer(memory=Memory(shared=4e9, left=1e9)))
        found = predict(made, TEMPORAL)
        assert found.memory == {"rollout+actor": 3e9}
        assert found.extrapolated == ("actor on 2 ranks (measured up to 1)",)

    def test_small_batches_are_drawn_from_what_is_known(self):
        made = problem(rollout(), trainer(), lengths=(1, 1, 1, 1), pool=np.array([1, 21]))
        assert predict(made, TEMPORAL).step_s == pytest.approx(1 + 20 * 15 / 16 + 0.1 * 11 * 2, rel=0.02)  # one of four is long


class TestAsynchronous:
    def plan(self, ahead, tree=SPATIAL.tree):
        return Plan(tree, staleness=ahead)

    def test_the_slower_side_bounds_a_step(self):
        made = problem(rollout(), trainer(token=0.1), staleness=4)
        assert predict(made, self.plan(2)).step_s == pytest.approx(4.0)
        made = problem(rollout(), trainer(token=1.0), staleness=4)
        assert predict(made, self.plan(2)).step_s == pytest.approx(16.0)

    def test_the_problem_bounds_the_plan(self):
        made = problem(rollout(), trainer(token=1.0))
        assert predict(made, self.plan(4)).step_s == pytest.approx(4 + 16.0)

    def test_what_shares_devices_with_training_does_not_run_ahead(self):
        made = problem(rollout(), trainer(token=1.0), staleness=4)
        assert predict(made, self.plan(4, TEMPORAL.tree)).step_s == pytest.approx(4 + 8.0)

    def test_weights_arrive_while_others_generate(self):
        made = problem(rollout(), trainer(token=0.5), staleness=2, sync_s=1.0)
        assert predict(made, self.plan(2)).step_s == pytest.approx(8 + 1.0)  # the trainer is busy with them

    @given(st.lists(st.integers(1, 30), min_size=12, max_size=12), st.integers(1, 4), st.integers(1, 6))
    @settings(max_examples=60, deadline=None, derandomize=True)
    def test_steps_end_when_a_simulation_of_slots_and_a_trainer_says(self, lengths, ahead, slots):
        made = problem(rollout(slots=slots), trainer(token=0.3), lengths=lengths, staleness=4)
        # the same batch again and again: the long run has a rhythm
        assert predict(made, self.plan(ahead)).step_s == pytest.approx(slot_by_slot(lengths, ahead, slots, 0.3), rel=0.1)


class TestReplay:
    BATCHES = (np.array([4, 4, 4, 4]), np.array([9, 1, 1, 1]), np.array([2, 2, 2, 2]))

    def test_each_batch_takes_what_its_own_lengths_do(self):
        made = problem(rollout(), trainer(), sync_s=0.5, step_s=0.25)
        assert replay(made, TEMPORAL, self.BATCHES) == pytest.approx([4 + 0.8 + 0.75, 9 + 0.6 + 0.75, 2 + 0.4 + 0.75])

    def test_generation_that_runs_ahead(self):
        """With a slot a response and training that takes no time, a batch begins as soon as the one two before it has ended."""
        made = problem(rollout(slots=8), trainer(token=0.0), staleness=1)
        assert replay(made, Plan(SPATIAL.tree, staleness=1), self.BATCHES) == pytest.approx([4, 9 - 4, 0])


def slot_by_slot(lengths, ahead, slots, token, steps=80):
    free, published, at = [0.0] * slots, [0.0] * (ahead + 1), 0.0
    for _ in range(steps):
        ends = []
        for length in lengths:
            end = max(heapq.heappop(free), published[-ahead - 1]) + length
            heapq.heappush(free, end)
            ends.append((end, length))
        for end, length in sorted(ends):
            at = max(at, end) + token * length
        published.append(at)
    half = steps // 2
    return (published[-1] - published[-half - 1]) / half


def test_long_tails_favour_running_ahead_and_constant_lengths_do_not():
    """The emulated workloads of the benchmark of the modes: 8 slots, 32 responses, as much work to train as to decode."""
    tree, ratios = InTurn(Leaf("rollout", 2), Leaf("actor", 2)), {}
    draws = np.random.default_rng(3)
    pools = {"constant": np.full(4000, 100), "lognormal": np.minimum(100 * draws.lognormal(-0.5, 1, 4000), 2000),
             "pareto": np.minimum(100 / 3 * (1 + draws.pareto(1.5, 4000)), 2000)}
    for name, pool in pools.items():
        pool = np.maximum(1, pool.round()).astype(np.int64)
        made = Problem((rollout(slots=8, step=0.01), trainer(token=0.01 / 8)), 2, pool[:32], pool=pool, staleness=4)
        ratios[name] = predict(made, Plan(tree)).step_s / predict(made, Plan(SPATIAL.tree, staleness=4)).step_s
    assert ratios["constant"] == pytest.approx(1.0, abs=0.02)
    assert 1.6 < ratios["lognormal"] < 2.0
    assert 1.9 < ratios["pareto"] < 2.5

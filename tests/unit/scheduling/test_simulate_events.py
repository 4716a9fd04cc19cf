"""The simulation of events: agrees with what is predicted, keeps to the rules of a real run, and says what devices did."""

from itertools import pairwise, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf_cli.scheduling.plan import Plan
from rlinf_cli.scheduling.problem import Batch, Curve, Decoding, Law, Problem, Stage
from rlinf_cli.scheduling.simulate import predict
from rlinf_cli.scheduling.simulate_events import run
from rlinf_cli.scheduling.tree import InTurn, Leaf, SideBySide, parse


def rollout(slots=4, step=1.0, **more):
    return Stage("rollout", Decoding(Curve((1.0,), (step,)), slots), **more)


def batch(name, token, *after, chunk=0.0, once=0.0, **more):
    return Stage(name, Batch(((1, Law(chunk_s=chunk, token_s=token)),), step_s=once), after, **more)


def problem(*stages, lengths=(4, 4, 4, 4), devices=2, **more):
    return Problem(stages, devices, np.array(lengths), **more)


def three(**more):
    """One to four responses of 1, 2, 4 and 9 tokens; a switch takes 1 s, new weights 0.5 s."""
    switches = dict.fromkeys(permutations(("rollout", "reference", "actor"), 2), 1.0)
    stages = rollout(), batch("reference", 0.05, "rollout"), batch("actor", 0.1, "reference", trains=True)
    return problem(*stages, switch_s=switches, sync_s=0.5, lengths=(1, 2, 4, 9), devices=4, **more)


def of(simulation, stage, state="compute", step=1):
    return [(span.began, span.ended) for span in simulation.spans if (span.stage, span.state, span.step) == (stage, state, step)]


class TestAgreement:
    @pytest.mark.parametrize("mode", ["temporal", "spatial", "hybrid"])
    @pytest.mark.parametrize(("name", "devices"), [("ppo_7b", 16), ("ppo_7b", 32), ("moe_30b_a3b", 32), ("moe_30b_a3b", 128)])
    def test_the_reference_workloads(self, workload, reference_plans, name, devices, mode):
        known = workload(name, devices)
        plan, seconds = reference_plans(known)[mode]
        assert run(known.problem, plan, 2).step_s == pytest.approx(seconds, rel=0.001)

    def test_thousands_of_samples_that_take_turns_within_each_chunk(self, workload, reference_plans):
        known = workload("grpo_7b", 64)
        plan, seconds = reference_plans(known)["hybrid"]
        chunks = Plan(plan.tree, {"inference": 64, "train": 64})
        assert run(known.problem, chunks, 2).step_s == pytest.approx(predict(known.problem, chunks).step_s, rel=1e-6)
        assert seconds < run(known.problem, chunks, 2).step_s < 1.02 * seconds

    @given(st.data())
    @settings(max_examples=100, deadline=None, derandomize=True)
    def test_random_plans(self, data):
        made, plan = data.draw(cases())
        assert run(made, plan).step_s == pytest.approx(predict(made, plan).step_s, rel=0.01)

    @given(st.data())
    @settings(max_examples=40, deadline=None, derandomize=True)
    def test_states_add_up_and_agree(self, data):
        made, plan = data.draw(cases())
        simulated, predicted = run(made, plan), predict(made, plan)
        for group, states in simulated.busy(plan.tree).items():
            assert sum(states.values()) == pytest.approx(simulated.step_s)
            if not plan.staleness:
                assert states == pytest.approx(predicted.busy[group], rel=0.01, abs=0.01 * predicted.step_s)


class TestWhatDevicesDo:
    def test_in_turn_each_begins_when_the_one_before_it_has_made_room(self):
        found = run(three(), Plan(parse("rollout 4, reference 4, actor 4")), 3)
        computing = [span.stage for span in found.spans if span.step == 1 and span.state == "compute"]
        assert computing == ["rollout", "reference", "actor"]
        [(_, generated)], [(began, scored)] = of(found, "rollout"), of(found, "reference")
        assert began == pytest.approx(generated + 1.0)
        assert of(found, "actor", "switch") == [pytest.approx((scored, scored + 1.0))]
        assert of(found, "actor", "sync") == [pytest.approx((found.ends[1] - 0.5, found.ends[1]))]

    def test_no_device_computes_for_two_at_a_time(self):
        plan = Plan(parse("rollout 2 | (reference 2, actor 2)"))
        found = run(three(), plan, 4)
        shared = sorted((span.began, span.ended) for span in found.spans if span.stage != "rollout" and span.state == "compute")
        assert all(first[1] <= second[0] + 1e-9 for first, second in pairwise(shared))
        assert set(found.busy(plan.tree)) == {"rollout", "reference+actor"}

    def test_side_by_side_work_goes_on_as_samples_come(self):
        found = run(three(), Plan(parse("rollout 2 | reference 1 | actor 1"), {"reference": 1, "actor": 1}), 2)
        # a response each at 1, 2, 4 and 9 s: 0.05 s a token to score, 0.1 s a token to train
        assert np.array(of(found, "reference", step=0)) == pytest.approx(np.array([(1, 1.05), (2, 2.1), (4, 4.2), (9, 9.45)]))
        trained = [(1.05, 1.15), (2.1, 2.3), (4.2, 4.6), (9.45, 10.35)]
        assert np.array(of(found, "actor", step=0)) == pytest.approx(np.array(trained))
        assert found.ends[0] == pytest.approx(10.35 + 0.5)

    def test_weights_keep_nobody_from_generating_ahead(self):
        found = run(three(staleness=1), Plan(parse("rollout 2 | reference 1 | actor 1"), staleness=1), 10)
        assert {span.stage for span in found.spans if span.state == "sync"} == {"actor"}
        step, following = of(found, "rollout", step=4)[0], of(found, "rollout", step=5)[0]
        assert following[0] < step[1]

    @pytest.mark.parametrize("ahead", [0, 1, 3])
    def test_a_step_begins_when_the_one_so_many_before_it_has_ended(self, ahead):
        found = run(three(staleness=ahead), Plan(parse("rollout 2 | reference 1 | actor 1"), staleness=ahead), 12)
        begins = {span.step: span.began for span in reversed(found.spans) if span.stage == "rollout" and span.state == "compute"}
        for step in range(ahead + 1, 12):
            assert begins[step] >= found.ends[step - ahead - 1] - 1e-9
        assert list(found.ends) == sorted(found.ends)

    def test_generation_that_shares_a_device_with_scoring_waits_for_it_but_not_for_training(self):
        made, plan = three(staleness=2), Plan(parse("(rollout 2, reference 2) | actor 2"), staleness=2)
        found = run(made, plan, 8)
        assert found.step_s < run(made, Plan(plan.tree), 8).step_s
        assert found.step_s == pytest.approx(predict(made, plan).step_s, rel=0.01)

    def test_devices_in_thousands_are_not_simulated_one_by_one(self):
        found = run(three(), Plan(parse("rollout 100000, reference 100000, actor 100000")), 2)
        assert len(found.spans) < 20


@st.composite
def cases(draw):
    """A chain, or one with a fork and a joint, on few devices in any arrangement."""
    names = ["rollout", "reference", "critic", "actor"][: draw(st.integers(2, 4))]
    names[-1] = "actor"
    small = st.floats(0.0, 0.3)
    forks = len(names) == 4 and draw(st.booleans())
    after = {"reference": ("rollout",), "critic": ("rollout",) if forks else ("reference",),
             "actor": ("reference", "critic") if forks else (names[-2],)}
    stages = [rollout(draw(st.integers(1, 4)), weights=draw(st.sampled_from(["", "policy"])))]
    stages += [batch(name, 0.02 + draw(small), *after[name], chunk=draw(small), once=draw(small), trains=name == "actor",
                     streams=draw(st.booleans()), weights=draw(st.sampled_from(["", "policy"]))) for name in names[1:]]
    switches = {(one, other): draw(st.floats(0, 3)) for one in names for other in names if one != other}
    transfers = {(name, stage.name): draw(small) for stage in stages for name in stage.after}
    group = draw(st.sampled_from([1, 2]))
    lengths = draw(st.lists(st.integers(1, 30), min_size=8, max_size=8))
    ahead = draw(st.integers(0, 2))
    made = problem(*stages, lengths=lengths, devices=8, group=group, switch_s=switches, transfer_s=transfers, staleness=ahead,
                   sync_s=draw(small), step_s=draw(small), interleaves=True)
    chunk = {name: group * draw(st.integers(1, 4)) for name in names[1:] if draw(st.booleans())}
    return made, Plan(draw(trees(names)), chunk, ahead)


@st.composite
def trees(draw, names):
    if len(names) == 1:
        return Leaf(names[0], draw(st.integers(1, 2)))
    cut = draw(st.integers(1, len(names) - 1))
    parts = draw(trees(names[:cut])), draw(trees(names[cut:]))
    return SideBySide(*parts) if draw(st.booleans()) else InTurn(*parts, per_chunk=draw(st.booleans()))
